"""The gold tables of a lake as a version published them."""

from pyspark.sql import DataFrame, SparkSession

from oncewire.pipeline.lake.columns import LEDGER, PARTNER_SERVICE
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.version import Version


def read_ledger(spark: SparkSession, lake: Lake, version: Version) -> DataFrame:
    """Every message, closed or open."""
    return lake.read(spark, version, LEDGER, "ledger_closed", "ledger_open")


def read_service(spark: SparkSession, lake: Lake, version: Version) -> DataFrame:
    """What each partner got and gave."""
    return lake.read(spark, version, PARTNER_SERVICE, "partner_service")
