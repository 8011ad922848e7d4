"""What a server of this package needs to be scraped: histograms, request imbalance, the endpoint."""
