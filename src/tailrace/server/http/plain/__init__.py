"""The short way of a request: a whole, unambiguous one for a route that takes many of them."""
