"""What a run or a check became, in the formats that CI systems, browsers and people read. One module a format."""
