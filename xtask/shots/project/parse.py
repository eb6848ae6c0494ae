def words(line):
    """Returns the words of a line."""
    return line.split(" ")
