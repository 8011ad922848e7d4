"""The cost of one priority calculation inside SGLang: measured in its environment, shown in ours."""
