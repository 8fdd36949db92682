/* The limit: librdkafka's batch consumer, which looks at each value's length and nothing else.
 *
 *     consume LIBRDKAFKA BOOTSTRAP TOPIC PARTITIONS RECORDS FOLDER
 *
 * The library is the one inside confluent_kafka's wheel, opened at run time, so no headers are needed: what is used of it
 * has been the same since librdkafka 0.8 (rdkafka.h). Leaves FOLDER/consumed.csv and FOLDER/warm.json. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 50000, MOST_PARTITIONS = 1024, BEGINNING = -2 };

typedef struct {
    int error;
    void *topic;
    int32_t partition;
    void *value;
    size_t length;
    void *key;
    size_t key_length;
    int64_t offset;
    void *private;
} message;

static void *library;

static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (!found) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
    return found;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static FILE *made(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file) { perror(path); exit(1); }
    return file;
}

int main(int count, char **given) {
    if (count != 7) { fprintf(stderr, "consume LIBRDKAFKA BOOTSTRAP TOPIC PARTITIONS RECORDS FOLDER\n"); return 2; }
    library = dlopen(given[1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    void *(*conf_new)(void) = function("rd_kafka_conf_new");
    int (*conf_set)(void *, const char *, const char *, char *, size_t) = function("rd_kafka_conf_set");
    void *(*client_new)(int, void *, char *, size_t) = function("rd_kafka_new");
    void *(*topic_new)(void *, const char *, void *) = function("rd_kafka_topic_new");
    void *(*queue_new)(void *) = function("rd_kafka_queue_new");
    int (*start)(void *, int32_t, int64_t, void *) = function("rd_kafka_consume_start_queue");
    ssize_t (*consume)(void *, int, message **, size_t) = function("rd_kafka_consume_batch_queue");
    void (*destroy)(message *) = function("rd_kafka_message_destroy");

    static const char *options[][2] = {{"fetch.message.max.bytes", "16777216"}, {"queued.min.messages", "500000"}, {"queued.max.messages.kbytes", "262144"}};
    char error[512];
    void *conf = conf_new();
    conf_set(conf, "bootstrap.servers", given[2], error, sizeof error);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) conf_set(conf, options[i][0], options[i][1], error, sizeof error);
    void *client = client_new(1 /* consumer */, conf, error, sizeof error);
    if (!client) { fprintf(stderr, "%s\n", error); return 1; }
    void *topic = topic_new(client, given[3], NULL), *queue = queue_new(client);
    int partitions = atoi(given[4]);
    if (partitions < 1 || partitions > MOST_PARTITIONS) { fprintf(stderr, "%s partitions\n", given[4]); return 2; }
    for (int partition = 0; partition < partitions; partition++) start(topic, partition, BEGINNING, queue);

    static message *batch[BATCH];
    static long records[MOST_PARTITIONS], bytes[MOST_PARTITIONS];
    long left = atol(given[5]), after = 0;
    double begun = 0;
    while (left) {
        ssize_t came = consume(queue, 1000, batch, left < BATCH ? (size_t)left : BATCH);
        long before = left;
        for (ssize_t i = 0; i < came; i++) {
            if (!batch[i]->error) {
                records[batch[i]->partition]++;
                bytes[batch[i]->partition] += batch[i]->length;
                left--;
            }
            destroy(batch[i]);
        }
        if (!begun && left < before) { begun = now(); after = left; }
    }
    double ended = now();

    FILE *file = made(given[6], "consumed.csv");
    fprintf(file, "partition,records,bytes\n");
    for (int partition = 0; partition < partitions; partition++)
        if (records[partition]) fprintf(file, "%d,%ld,%ld\n", partition, records[partition], bytes[partition]);
    fclose(file);
    if (after) {
        file = made(given[6], "warm.json");
        fprintf(file, "{\"events\": %ld, \"seconds\": %.6f}", after, ended - begun);
        fclose(file);
    }
    /* Closing politely takes seconds, and is nobody's measure. */
    _exit(0);
}
