// A small fuzzer with fixed seeds that always runs. Nothing may crash, and the output stays
// proportional to the number of received options.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <variant>

#include "protocol/gate.hpp"
#include "tests/protocol/handshake.hpp"

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

TEST_CASE("random bytes") {
    const PlainExportDirectory exports;
    Random random(1);
    for (int round = 0; round < rounds; ++round) {
        CAPTURE(round);
        const Bytes input = random_bytes(random, below(random, 200));
        check_bounded(input, run(exports, input, 1 + below(random, 50)));
        const Bytes past_flags = joined({wire::client_flags(), input});
        check_bounded(past_flags, run(exports, past_flags, 1 + below(random, 50)));
    }
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

TEST_CASE("random requests never become a command out of range") {
    Random random(3);
    NegotiatedOptions negotiated;
    negotiated.export_info.size = 1ULL << 32;
    int valid = 0;
    for (int round = 0; round < 20 * rounds; ++round) {
        negotiated.headers = static_cast<Headers>(below(random, 3));
        const bool extended = negotiated.headers == Headers::extended;
        for (const MetaContext context : all_contexts) {
            if (negotiated.headers != Headers::simple && below(random, 2) != 0)
                negotiated.contexts.add(context);
        }
        negotiated.export_info.read_only = below(random, 4) == 0;
        negotiated.export_info.minimum_block = 1U << below(random, 13);
        Bytes wire = random_bytes(random, request_size);
        const Bytes magic = hex(extended ? "21e41c71" : "25609513");
        std::copy(magic.begin(), magic.end(), wire.begin());
        wire[4] = wire[6] = std::byte{0};
        wire[5] &= std::byte{0x3f};
        wire[7] &= std::byte{0x0f};
        if (below(random, 4) != 0) {
            wire[5] &= std::byte{command_flag::fua | command_flag::payload_len};
            for (const std::size_t high : {16, 17, 18, 19, 24}) wire[high] = std::byte{0};
            for (const std::size_t low : {22, 23, 26, 27}) wire[low] = std::byte{0};
        }
        if (extended) {  // rarely more than 32 bits of length
            const Bytes high = below(random, 8) == 0 ? random_bytes(random, 4) : Bytes(4);
            wire.insert(wire.begin() + 24, high.begin(), high.end());
        }
        ExactBuffer bytes(wire);
        const auto request = decode_request(bytes.span(), negotiated.headers);
        REQUIRE(request.has_value());
        Validated validated = validate(*request, negotiated);
        if (const auto* payload = std::get_if<StatusPayload>(&validated)) {
            REQUIRE(payload->length <= max_status_payload);
            const bool zeroes = below(random, 2) != 0;
            ExactBuffer content(zeroes ? Bytes(payload->length)
                                       : random_bytes(random, payload->length));
            validated = validate_status(*request, content.span(), negotiated);
            REQUIRE_FALSE(std::holds_alternative<StatusPayload>(validated));
        }
        if (const auto* command = std::get_if<Command>(&validated)) {
            const ExportInfo& info = negotiated.export_info;
            const bool fine = command->offset <= info.size &&
                              command->length <= info.size - command->offset &&
                              command->offset % info.minimum_block == 0 &&
                              command->length % info.minimum_block == 0;
            CHECK(fine);
            valid += command->type != CommandType::disc;
        } else if (const auto* refusal = std::get_if<Refusal>(&validated)) {
            const bool bounded = refusal->discard <= 2 * max_payload;
            CHECK(bounded);
        }
    }
    CHECK(valid > rounds);
}

}  // namespace
}  // namespace gpunbd::protocol::test
