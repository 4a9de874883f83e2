#include "config/size.hpp"

#include <random>

#include "tests/test.hpp"

namespace gpunbd::config {
namespace {

constexpr std::uint64_t TiB = 1024 * GiB;

TEST_CASE("valid sizes are parsed") {
    const std::tuple<const char*, Size, const char*> rows[] = {
        {"0", {.bytes = 0}, "0"},
        {"1", {.bytes = 1}, "1"},
        {"512", {.bytes = 512}, "512"},
        {"512B", {.bytes = 512}, "512"},
        {"1000b", {.bytes = 1000}, "1000"},
        {"4096", {.bytes = 4096}, "4K"},
        {"4k", {.bytes = 4096}, "4K"},
        {"4K", {.bytes = 4096}, "4K"},
        {"4KiB", {.bytes = 4096}, "4K"},
        {"4kib", {.bytes = 4096}, "4K"},
        {"64M", {.bytes = 64 * MiB}, "64M"},
        {"64Mi", {.bytes = 64 * MiB}, "64M"},  // as in Kubernetes
        {"64MIB", {.bytes = 64 * MiB}, "64M"},
        {"1.5GiB", {.bytes = 1536 * MiB}, "1536M"},
        {"1.5m", {.bytes = 1536 * KiB}, "1536K"},
        {"0.5K", {.bytes = 512}, "512"},
        {"0.0009765625K", {.bytes = 1}, "1"},
        {"1.0", {.bytes = 1}, "1"},
        {"2.000G", {.bytes = 2 * GiB}, "2G"},
        {"1024G", {.bytes = TiB}, "1T"},
        {"8T", {.bytes = 8 * TiB}, "8T"},
        {"0.0000000000009094947017729282379150390625T", {.bytes = 1}, "1"},
        {"00012K", {.bytes = 12 * KiB}, "12K"},
        {"16777215T", {.bytes = 16777215 * TiB}, "16777215T"},
        {"16777215.9990234375T", {.bytes = 16777216 * TiB - GiB}, "17179869183G"},
        {"18446744073709551615", {.bytes = ~std::uint64_t{0}}, "18446744073709551615"},
        {"1%", {.percent = 1}, "1%"},
        {"75%", {.percent = 75}, "75%"},
        {"100%", {.percent = 100}, "100%"},
    };
    for (const auto& [text, size, formatted] : rows) {
        CAPTURE(text);
        const auto parsed = parse_size(text);
        REQUIRE(std::holds_alternative<Size>(parsed));
        CHECK(std::get<Size>(parsed) == size);
        CHECK(format_size(size) == formatted);
    }
}

TEST_CASE("invalid sizes are refused with a remedy") {
    const std::pair<const char*, const char*> rows[] = {
        {"", "the size is empty; write for example 8G"},
        {"-1", "'-1' is negative; write for example 8G"},
        {"-5G", "'-5G' is negative; write for example 8G"},
        {"+1G", "'+1G' is not a size; write for example 8G, 1.5GiB or 4096"},
        {"G", "'G' is not a size; write for example 8G, 1.5GiB or 4096"},
        {".5G", "'.5G' is not a size; write for example 8G, 1.5GiB or 4096"},
        {"1.G", "'1.G' is not a size; write for example 8G, 1.5GiB or 4096"},
        {" 1G", "' 1G' is not a size; write for example 8G, 1.5GiB or 4096"},
        {"eight", "'eight' is not a size; write for example 8G, 1.5GiB or 4096"},
        {"8GB", "'8GB' has a decimal unit, and sizes are binary; write 8G or 8GiB"},
        {"1.5kb", "'1.5kb' has a decimal unit, and sizes are binary; write 1.5K or 1.5KiB"},
        {"8 G", "'8 G' is not a size; write 8G"},
        {"10 gigs", "'10 gigs' is not a size; write 10G"},
        {"1.5 terabytes", "'1.5 terabytes' is not a size; write 1.5T"},
        {"1,5G", "'1,5G' is not a size; write 1.5G"},
        {"1,000",
         "'1,000' is not a size: unknown unit ',000'; write a number with K, M, G or T, for "
         "example 8G"},
        {"1P",
         "'1P' is not a size: unknown unit 'P'; write a number with K, M, G or T, for example 8G"},
        {"0x10",
         "'0x10' is not a size: unknown unit 'x10'; write a number with K, M, G or T, for example "
         "8G"},
        {"1.5", "'1.5' is not a whole number of bytes; use a smaller unit"},
        {"0.3K", "'0.3K' is not a whole number of bytes; use a smaller unit"},
        {"0.00000000000000000000000000000000000000000000000001T",
         "'0.00000000000000000000000000000000000000000000000001T' is not a whole number of bytes; "
         "use a smaller unit"},
        {"18446744073709551616",
         "'18446744073709551616' is too large; a size is less than 16777216T"},
        {"16777216T", "'16777216T' is too large; a size is less than 16777216T"},
        {"99999999999999999999999G",
         "'99999999999999999999999G' is too large; a size is less than 16777216T"},
        {"0%", "'0%' is not a share; write a whole percentage from 1% to 100%"},
        {"101%", "'101%' is not a share; write a whole percentage from 1% to 100%"},
        {"12.5%", "'12.5%' is not a share; write a whole percentage from 1% to 100%"},
        {"99999999999%", "'99999999999%' is not a share; write a whole percentage from 1% to 100%"},
        {"%", "'%' is not a share; write a whole percentage from 1% to 100%"},
        {"1G%", "'1G%' is not a share; write a whole percentage from 1% to 100%"},
    };
    for (const auto& [text, what] : rows) {
        CAPTURE(text);
        const auto parsed = parse_size(text);
        REQUIRE(std::holds_alternative<std::string>(parsed));
        CHECK(std::get<std::string>(parsed) == what);
    }
}

TEST_CASE("messages escape and truncate quoted text") {
    const auto what = [](std::string_view text) { return std::get<std::string>(parse_size(text)); };
    CHECK(what("\x1b[2J").starts_with("'\\x1b[2J'"));
    CHECK(what("\xff").starts_with("'\\xff'"));
    CHECK(what(std::string_view("\0G", 2)).starts_with("'\\x00G'"));
    CHECK(what(std::string(100'000, 'x')).size() < 200);
}

TEST_CASE("human_size rounds to one decimal") {
    const std::pair<std::uint64_t, const char*> rows[] = {
        {0, "0 bytes"},
        {1, "1 byte"},
        {1023, "1023 bytes"},
        {KiB, "1 KiB"},
        {KiB + 51, "1 KiB"},
        {KiB + 52, "1.1 KiB"},
        {1536, "1.5 KiB"},
        {MiB - 1, "1 MiB"},
        {MiB - 52, "1023.9 KiB"},
        {512 * MiB, "512 MiB"},
        {1536 * MiB, "1.5 GiB"},
        {GiB - 1, "1 GiB"},
        {20 * GiB + 300 * MiB, "20.3 GiB"},
        {TiB - GiB, "1023 GiB"},
        {8 * TiB, "8 TiB"},
        {~std::uint64_t{0}, "16777216 TiB"},
    };
    for (const auto& [bytes, text] : rows) {
        CAPTURE(text);
        CHECK(human_size(bytes) == text);
    }
}

TEST_CASE("a formatted size is parsed to the same size") {
    std::mt19937_64 random(2);
    for (int i = 0; i < 20'000; ++i) {
        const Size size{.bytes = (random() >> (random() % 64)) << (random() % 40)};
        const auto parsed = parse_size(format_size(size));
        REQUIRE(std::holds_alternative<Size>(parsed));
        REQUIRE(std::get<Size>(parsed) == size);
    }
}

}  // namespace
}  // namespace gpunbd::config
