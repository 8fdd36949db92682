#!/bin/bash
# The entry of the image: `kappa` with its arguments. Or `executor`, as Spark on Kubernetes starts
# one, with these variables (Spark 4.2, resource-managers/kubernetes/docker).
set -euo pipefail

if [ "${1:-}" != executor ]; then
  exec kappa "$@"
fi

options=()
while name="SPARK_JAVA_OPT_${#options[@]}"; [ -n "${!name+given}" ]; do
  options+=("${!name}")
done
SPARK_HOME=$(python -c 'from kappa.base.java.jars import spark_home; print(spark_home())')
export SPARK_HOME
exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "$SPARK_CONF_DIR:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --app-id "$SPARK_APPLICATION_ID" \
  --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --hostname "$SPARK_EXECUTOR_POD_IP" --podName "$SPARK_EXECUTOR_POD_NAME" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID"
