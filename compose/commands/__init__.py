"""One file per command of ``tokentrail``. ``common`` has what they share: options, output, expected errors."""
