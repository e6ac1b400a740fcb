"""The journal in a PostgreSQL database, for any number of machines."""
