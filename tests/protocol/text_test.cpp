#include "protocol/option_data.hpp"

#include "protocol/constants.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

using namespace std::string_view_literals;

TEST_CASE("strings must be valid UTF-8 without NUL") {
    constexpr std::tuple<const char*, std::string_view, bool> rows[] = {
        {"empty", ""sv, true},
        {"ASCII", "disk-0"sv, true},
        {"control characters", "a\nb\x7f"sv, true},
        {"NUL alone", "\0"sv, false},
        {"NUL at the end", "disk\0"sv, false},
        {"first of two bytes", "\xc2\x80"sv, true},
        {"last of two bytes", "\xdf\xbf"sv, true},
        {"first of three bytes", "\xe0\xa0\x80"sv, true},
        {"last of three bytes", "\xef\xbf\xbf"sv, true},
        {"before the surrogates", "\xed\x9f\xbf"sv, true},
        {"after the surrogates", "\xee\x80\x80"sv, true},
        {"first of four bytes", "\xf0\x90\x80\x80"sv, true},
        {"U+10FFFF", "\xf4\x8f\xbf\xbf"sv, true},
        {"U+110000", "\xf4\x90\x80\x80"sv, false},
        {"lead past U+10FFFF", "\xf5\x80\x80\x80"sv, false},
        {"surrogate", "\xed\xa0\x80"sv, false},
        {"overlong NUL", "\xc0\x80"sv, false},
        {"overlong, two bytes", "\xc1\xbf"sv, false},
        {"overlong, three bytes", "\xe0\x9f\xbf"sv, false},
        {"overlong, four bytes", "\xf0\x8f\xbf\xbf"sv, false},
        {"a continuation alone", "\x80"sv, false},
        {"two bytes cut", "a\xc2"sv, false},
        {"three bytes cut", "\xe2\x82"sv, false},
        {"four bytes cut", "\xf0\x9f\x92"sv, false},
        {"a third byte that does not continue", "\xe2\x82\x41"sv, false},
        {"a fourth byte that does not continue", "\xf0\x9f\x92\xc0"sv, false},
        {"0xff", "\xff"sv, false},
    };
    for (const auto& [name, text, valid] : rows) {
        CAPTURE(name);
        CHECK(valid_string(text) == valid);
    }
    CHECK(valid_string(std::string(max_string, 'x')));
    CHECK_FALSE(valid_string(std::string(max_string + 1, 'x')));
}

TEST_CASE("a name cannot forge a log line") {
    CHECK(for_log("disk") == "'disk'");
    CHECK(for_log("a\nb'\x1b\xff") == R"('a?b???')");
    CHECK(for_log(std::string(65, 'x')) == '\'' + std::string(64, 'x') + "...'");
}

}  // namespace
}  // namespace gpunbd::protocol::test
