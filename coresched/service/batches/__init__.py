"""Batches that many client processes share: sessions, claims, leases, and what the journal keeps of them."""
