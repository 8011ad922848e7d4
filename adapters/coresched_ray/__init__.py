"""LBCH and the batch coordinator inside Ray: a request router for Serve, and a named actor."""
