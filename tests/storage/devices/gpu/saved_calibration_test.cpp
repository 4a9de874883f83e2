// Saving a calibration result and reading it back.
#include "storage/devices/gpu/measured_calibration.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr const char* this_gpu = "NVIDIA H200, PCIe gen 5 x16, driver 13000, mapped, gpu_use auto";

Calibration found_calibration() {
    Calibration calibration{.policy = {}, .chunk_size = 2 << 20};
    calibration.policy.rows = {
        {Direction::read, Policy::on(Load::alone), 4096, PathKind::streaming_load},
        {Direction::zero, Policy::any_load, Policy::any_size, PathKind::copy_engine}};
    return calibration;
}

const std::string as_text = std::string("gpunbd calibration 1\n") + this_gpu +
                            "\n"
                            "2097152\n"
                            "0 1 4096 1\n"
                            "2 7 4294967295 2\n";

TEST_CASE("saved calibration: is restored unchanged") {
    CHECK(saved(found_calibration(), this_gpu) == as_text);
    const auto read = read_calibration(as_text, this_gpu);
    REQUIRE(read);
    CHECK(read->chunk_size == 2 << 20);
    REQUIRE(read->policy.rows.size() == 2);
    CHECK(to_text(read->policy) == to_text(found_calibration().policy));
    const auto usual = read_calibration(saved({}, this_gpu), this_gpu);
    REQUIRE(usual);
    CHECK(to_text(usual->policy) == to_text(default_policy()));
}

TEST_CASE("saved calibration: is not used in other circumstances") {
    CHECK_FALSE(read_calibration(as_text, "NVIDIA H200, PCIe gen 4 x16"));
    CHECK_FALSE(read_calibration(as_text, ""));
}

TEST_CASE("saved calibration: truncated or extended text is refused") {
    for (std::size_t length = 0; length != as_text.size(); ++length) {
        CAPTURE(length);
        // A text that ends after a complete row is valid.
        const bool whole = length == as_text.size() - std::string("2 7 4294967295 2\n").size();
        CHECK(read_calibration(as_text.substr(0, length), this_gpu).has_value() == whole);
    }
    for (const char* more : {"\n", " ", "x", "0 1 4096\n", "0 1 4096 1"}) {
        CHECK_FALSE(read_calibration(as_text + more, this_gpu));
    }
}

struct OddText {
    const char* name;
    const char* lines;  // after the circumstances
};

TEST_CASE("saved calibration: invalid values are refused") {
    const std::vector<OddText> rows{
        {"no rows", "1048576\n"},
        {"no chunk size", "0 1 4096 1\n"},
        {"chunks of nothing", "0\n0 1 4096 1\n"},
        {"short chunks", "32768\n0 1 4096 1\n"},
        {"long chunks", "134217728\n0 1 4096 1\n"},
        {"chunks of no power of two", "1048577\n0 1 4096 1\n"},
        {"a second number", "1048576 1\n0 1 4096 1\n"},
        {"negative", "1048576\n0 1 -4096 1\n"},
        {"too large a number", "1048576\n0 1 4294967296 1\n"},
        {"no direction", "1048576\n3 1 4096 2\n"},
        {"no load", "1048576\n0 0 4096 1\n"},
        {"unknown load", "1048576\n0 8 4096 1\n"},
        {"no size", "1048576\n0 1 0 1\n"},
        {"no path", "1048576\n0 1 4096 6\n"},
        {"a read that stores", "1048576\n0 1 4096 0\n"},
        {"a write that loads", "1048576\n1 1 4096 1\n"},
        {"a column too few", "1048576\n0 1 4096\n"},
        {"a column too many", "1048576\n0 1 4096 1 1\n"},
        {"two blanks", "1048576\n0  1 4096 1\n"},
        {"a blank behind", "1048576\n0 1 4096 1 \n"},
        {"leading zeroes", "1048576\n00 1 4096 1\n"},
        {"an empty line", "1048576\n\n0 1 4096 1\n"},
    };
    for (const OddText& row : rows) {
        CAPTURE(row.name);
        CHECK_FALSE(read_calibration(
            std::string("gpunbd calibration 1\n") + this_gpu + "\n" + row.lines, this_gpu));
    }
    CHECK_FALSE(read_calibration(
        std::string("gpunbd calibration 2\n") + this_gpu + "\n1048576\n0 1 4096 1\n", this_gpu));
    std::string long_one = std::string("gpunbd calibration 1\n") + this_gpu + "\n1048576\n";
    for (int i = 0; i != 257; ++i) long_one += "0 1 4096 1\n";
    CHECK_FALSE(read_calibration(long_one, this_gpu));
}

}  // namespace
}  // namespace gpunbd::storage::test
