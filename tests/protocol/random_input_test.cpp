// A small fuzzer with fixed seeds that always runs. Nothing may crash, and the output stays
// proportional to the number of received options. The fuzzers (tests/fuzz) send arbitrary bytes,
// and requests.
#include <random>

#include "tests/protocol/handshake.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

constexpr int rounds = 4000;
constexpr std::size_t max_answer = 1024;  // the longest reply of these exports to any one option

using Random = std::mt19937;

std::uint32_t below(Random& random, std::uint32_t limit) {
    return std::uniform_int_distribution<std::uint32_t>(0, limit - 1)(random);
}

Bytes random_bytes(Random& random, std::size_t length) {
    Bytes bytes(length);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(random, 256));
    return bytes;
}

Bytes random_option(Random& random) {
    const std::uint32_t type = below(random, 14);
    const std::string_view name =
        std::initializer_list<std::string_view>{"disk", "", "ro", "nowhere"}
            .begin()[below(random, 4)];
    switch (below(random, 6)) {
        case 0:
            return option(type, random_bytes(random, below(random, 40)));
        case 1:
            return option(type);
        case 2:
            return option(type, meta_data(name, {"base:allocation", "base:"}));
        case 3:
            return option(type, text_bytes(name));
        default:
            return option(type, info_data(name, {static_cast<std::uint16_t>(below(random, 5)), 3}));
    }
}

// A valid handshake in which a few bytes are changed.
Bytes nearly_a_handshake(Random& random) {
    Bytes input = wire::client_flags();
    const std::uint32_t count = below(random, 12);
    for (std::uint32_t i = 0; i < count; ++i) input = joined({input, random_option(random)});
    const std::uint32_t changes = below(random, 4);
    for (std::uint32_t i = 0; i < changes; ++i)
        input[below(random, static_cast<std::uint32_t>(input.size()))] =
            static_cast<std::byte>(below(random, 256));
    return input;
}

void check_bounded(const Bytes& input, const Outcome& outcome) {
    CHECK(outcome.used <= input.size());
    CHECK(outcome.output.size() <= max_answer * (1 + input.size() / 16));
    CHECK((outcome.next == Next::close || outcome.reason.empty()));
}

TEST_CASE("nearly right handshakes, in any pieces, give one result") {
    const PlainExportDirectory exports;
    Random random(2);
    for (int round = 0; round < rounds; ++round) {
        CAPTURE(round);
        const Bytes input = nearly_a_handshake(random);
        const Outcome whole = run(exports, input);
        const Outcome pieces = run(exports, input, 1 + below(random, 20));
        check_bounded(input, whole);
        CHECK(pieces.next == whole.next);
        CHECK(pieces.used == whole.used);
        CHECK(to_hex(pieces.output) == to_hex(whole.output));
    }
}

}  // namespace
}  // namespace gpunbd::protocol::test
