"""What a run will take, from measurements: time, memory, money, and how much of its horizon it will see."""
