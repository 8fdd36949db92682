"""The user's function over a decoded slice: what it contributes, and on which record it fails."""
