"""``python -m edge``: one edge process."""

from edge.app import main

if __name__ == "__main__":
    main()
