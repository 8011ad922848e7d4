"""Whether holding returning turns back, to prefill several at once, makes a batch end sooner."""
