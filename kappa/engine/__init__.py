"""The engine: it folds slices by Spark, from offsets to commits. Rooms in a slice's order.

spark     sessions: how a JVM starts, and what Spark's plans say
read      from offsets to records as they are in the log
decode    from records to valid events, or to reasons
fold      from contributions to rows by key
function  the user's function over a decoded slice
write     one commit a table, then one frontier a slice
legs      the stretches of a job, written down before they begin
job       the process that folds slices for one build
archive   a typed copy of a topic's log
children  programs of Spark processes that do one thing and end
spare     processes with Spark booted and warm, which wait for what they do
"""
