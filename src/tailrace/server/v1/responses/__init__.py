"""`/v1/responses`: requests, stored responses and their routes."""
