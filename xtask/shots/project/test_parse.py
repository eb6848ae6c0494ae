import unittest

from parse import words


class Words(unittest.TestCase):
    def test_spaces_between_words_do_not_count(self):
        self.assertEqual(words("one  two"), ["one", "two"])


if __name__ == "__main__":
    unittest.main()
