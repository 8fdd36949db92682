"""Builds that nobody needs any more, and the files that go with them."""
