// Names from a server on a terminal.
#include "server/tools/status/sanitized_text.hpp"

#include "tests/test.hpp"

namespace gpunbd::status {
namespace {

TEST_CASE("control characters and invalid UTF-8 are shown as ?") {
    const std::pair<const char*, const char*> rows[] = {
        {"plain name", "plain name"},
        {"a\x1b[2Jb", "a?[2Jb"},
        {"a\nb\tc\x7f", "a?b?c?"},
        {"a\xc2\x9bm", "a?m"},         // C1: CSI
        {"a\xe2\x80\xaex", "a?x"},     // right-to-left override
        {"a\xe2\x80\x8bx", "a?x"},     // zero width
        {"a\xef\xbb\xbfx", "a?x"},     // byte order mark
        {"e\xcc\x81", "e?"},           // combining
        {"\xff\xc0\x80", "???"},       // invalid byte; overlong encoding
        {"\xed\xa0\x80", "???"},       // surrogate
        {"\xf4\x90\x80\x80", "????"},  // beyond Unicode
        {"a\xe2\x82", "a??"},          // truncated
        {"\xc3\xa9\xe2\x82\xac", "\xc3\xa9\xe2\x82\xac"},
        {"\xe6\xbc\xa2\xf0\x9f\x92\xbe", "\xe6\xbc\xa2\xf0\x9f\x92\xbe"}};
    for (const auto& [given, shown] : rows) {
        CAPTURE(given);
        CHECK(sanitized(given) == shown);
    }
}

TEST_CASE("text is measured, truncated and padded in columns") {
    const std::string wide = "\xe6\xbc\xa2\xe5\xad\x97";  // two characters of two columns
    CHECK(columns_of("abc") == 3);
    CHECK(columns_of("\xc3\xa9") == 1);
    CHECK(columns_of(wide) == 4);
    CHECK(columns_of("\xf0\x9f\x92\xbe") == 2);
    CHECK(fitted("abc", 5) == "abc  ");
    CHECK(fitted("abc", 3) == "abc");
    CHECK(fitted("abcd", 3) == "ab~");
    CHECK(fitted("abcd", 1) == "~");
    CHECK(fitted("abcd", 0) == "");
    CHECK(fitted(wide, 4) == wide);
    CHECK(fitted(wide, 3) == wide.substr(0, 3) + "~");
    CHECK(fitted(wide, 2) == "~ ");
    CHECK(fitted("", 2) == "  ");
}

TEST_CASE("numbers take at most five columns") {
    CHECK(short_size(0) == "0");
    CHECK(short_size(1023) == "1023");
    CHECK(short_size(1024) == "1.0K");
    CHECK(short_size(1536) == "1.5K");
    CHECK(short_size(1023.9 * 1024) == "1.0M");
    CHECK(short_size(20.3 * 1073741824) == "20.3G");
    CHECK(short_size(1.8e19) == "15.6E");
    CHECK(short_size(-1) == "0");
    CHECK(short_count(999) == "999");
    CHECK(short_count(1000) == "1.0k");
    CHECK(short_count(12'345'678) == "12.3M");
    CHECK(short_duration(0) == "-");
    CHECK(short_duration(1e-9) == "1us");
    CHECK(short_duration(0.00085) == "850us");
    CHECK(short_duration(0.0012) == "1.2ms");
    CHECK(short_duration(0.9994) == "999ms");
    CHECK(short_duration(12) == "12.0s");
    CHECK(short_duration(1e12) == ">9999");
    CHECK(short_age(-5) == "0s");
    CHECK(short_age(59.9) == "59s");
    CHECK(short_age(754) == "12m34");
    CHECK(short_age(86'399) == "23h59");
    CHECK(short_age(365 * 86'400.0) == "365d");
    CHECK(short_age(1e300) == "9999d");
    for (double value = 1e-7; value < 1e20; value *= 1.07) {
        CAPTURE(value);
        CHECK(short_size(value).size() <= 5);
        CHECK(short_count(value).size() <= 5);
        CHECK(short_duration(value).size() <= 5);
        CHECK(short_age(value).size() <= 5);
    }
}

}  // namespace
}  // namespace gpunbd::status
