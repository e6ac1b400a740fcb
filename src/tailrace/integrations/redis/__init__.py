"""The bus on Redis Streams: committed entries reach viewers on other machines without a read of storage."""
