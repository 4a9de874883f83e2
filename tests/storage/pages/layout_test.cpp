#include "storage/pages/layout.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

std::string devices_of(const Layout& layout, std::uint64_t pages) {
    std::string text;
    for (std::uint64_t page = 0; page != pages; ++page) {
        text += static_cast<char>('0' + layout.device_of(page));
    }
    return text;
}

TEST_CASE("layout: linear") {
    const struct {
        const char* name;
        std::vector<std::uint64_t> shares;
        std::string devices;  // the device of each page
    } rows[] = {
        {"one device", {4}, "0000"},
        {"one page", {1}, "0"},
        {"two", {3, 2}, "00011"},
        {"an empty share first", {0, 2}, "11"},
        {"an empty share between", {2, 0, 1}, "002"},
        {"an empty share last", {2, 0}, "00"},
        {"eight", {1, 1, 1, 1, 1, 1, 1, 1}, "01234567"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        const Layout layout = Layout::linear(row.shares);
        CHECK(layout.devices() == row.shares.size());
        CHECK(devices_of(layout, row.devices.size()) == row.devices);
        for (std::uint32_t i = 0; i != layout.devices(); ++i) {
            CHECK(layout.pages_on(i) == row.shares[i]);
        }
    }
}

TEST_CASE("layout: stripe") {
    const struct {
        const char* name;
        std::uint64_t unit;
        std::uint32_t count;
        std::string devices;
    } rows[] = {
        {"one device", 2, 1, "00000"},
        {"page by page", 1, 2, "01010"},
        {"whole rounds", 2, 2, "00110011"},
        {"ends within a unit", 2, 3, "001122001"},
        {"ends within the first unit", 4, 3, "00"},
        {"ends after a unit", 3, 2, "000"},
        {"eight", 1, 8, "012345670"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        const Layout layout = Layout::stripe(row.devices.size(), row.unit, row.count);
        CHECK(layout.devices() == row.count);
        CHECK(devices_of(layout, row.devices.size()) == row.devices);
    }
}

TEST_CASE("layout: pages_on agrees with device_of, for every length of a stripe") {
    for (std::uint32_t devices = 1; devices != 9; ++devices) {
        for (std::uint64_t in_turn = 1; in_turn != 5; ++in_turn) {
            for (std::uint64_t pages = 1; pages != 50; ++pages) {
                const Layout layout = Layout::stripe(pages, in_turn, devices);
                std::vector<std::uint64_t> counts(devices);
                for (std::uint64_t page = 0; page != pages; ++page) {
                    ++counts[layout.device_of(page)];
                }
                for (std::uint32_t i = 0; i != devices; ++i) {
                    REQUIRE(layout.pages_on(i) == counts[i]);
                }
            }
        }
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
