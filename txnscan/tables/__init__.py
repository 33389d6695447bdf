"""The Delta tables, through Spark or delta-rs."""
