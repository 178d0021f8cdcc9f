"""What it tells us: the journal and the messages as tables, on Spark through PySpark.

Importing this package needs no Spark; its modules do, because they are the Spark part.
"""
