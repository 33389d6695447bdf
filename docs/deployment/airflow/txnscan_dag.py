"""Sweeps every five minutes. `sweep` fails where not everything was observed, `hanging` where something hangs: two
alerts, by two exit statuses. `plan` then leaves a plan for a person to read; nothing here applies it.

Variables of Airflow: txnscan_bootstrap_servers, txnscan_tables, txnscan_plans; and txnscan_command_config, the path of
a client.properties, if the cluster needs one.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

BOOTSTRAP_SERVERS = "{{ var.value.txnscan_bootstrap_servers }}"
COMMAND_CONFIG = (
    "{% if var.value.get('txnscan_command_config') %}--command-config {{ var.value.txnscan_command_config }}{% endif %}"
)
TABLES = "{{ var.value.txnscan_tables }}"
PLAN = "{{ var.value.txnscan_plans }}/{{ ts_nodash }}.json"

with DAG(
    "txnscan",
    schedule="*/5 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    # Never two sweeps of one cluster at once.
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=15),
):
    sweep = BashOperator(
        task_id="sweep",
        # 1: failed. 4: not everything was observed. What hangs is the next task's to say.
        bash_command=f"txnscan sweep --bootstrap-server {BOOTSTRAP_SERVERS} {COMMAND_CONFIG} --tables {TABLES}"
        " --engine threads --fail-on incomplete",
        retries=1,
        retry_delay=timedelta(seconds=30),
        execution_timeout=timedelta(minutes=4),
    )
    hanging = BashOperator(
        task_id="hanging",
        # 3: something hangs. 4: the last sweep is older than a quarter of an hour.
        bash_command=f"txnscan show --tables {TABLES} --max-age 15m --fail-on hanging",
        # Also where the sweep was not complete: what it did observe hanging hangs.
        trigger_rule="all_done",
        retries=0,
    )
    plan = BashOperator(
        task_id="plan",
        bash_command=f"txnscan plan --tables {TABLES} --out {PLAN}",
        trigger_rule="all_failed",
        retries=0,
    )
    sweep >> hanging >> plan
