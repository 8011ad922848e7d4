"""An endpoint picker for Envoy and the Gateway API Inference Extension."""
