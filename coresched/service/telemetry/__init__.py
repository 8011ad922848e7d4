"""What the service shows of itself: metrics to scrape, log lines and spans, all from what happened."""
