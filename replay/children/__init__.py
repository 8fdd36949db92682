"""The children of a supervisor: jobs, verifications, the archiver, HTTP and the broker.

This room starts, ends and reaps processes. It decides no step of a rollout, and reads no topic's
records. Read in this order:

child             one child process: started, asked to end, killed, reaped
back_off          the wait after a death
pulse             how long a child has shown no sign of life
spares            processes with Spark ready, for the next job or command
rest              when a build needs no job, and when it is woken: pure
rests             the builds that rest, by looks at the ends of the log
processes         the jobs of builds and the verifications
course            what the ends of a job's processes come to
http_process      the keeper of HTTP as a child, and an earlier one
socket_door       HTTP's listening socket, handed from one keeper to the next
archiver_process  the archiver as a child
at_broker         a program that is given the broker's address; the courier and the collector
reserve           space that is given up once the disk is full
kafka             the embedded broker, or the configured cluster
stop_request      SIGTERM, Ctrl-C and a closed terminal
"""
