"""AIBrix's external strategy: an endpoint that picks among the candidates of a request."""
