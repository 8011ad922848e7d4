"""The batch coordinator: sample admission, environment slots, trajectory progress."""
