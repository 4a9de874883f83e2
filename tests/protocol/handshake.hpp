// A client's side of the handshake: builds options byte by byte, parses replies, and runs a whole
// handshake in pieces of any size.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/negotiation.hpp"
#include "tests/protocol/bytes_of.hpp"
#include "tests/protocol/plain_export_directory.hpp"

namespace gpunbd::protocol::test {

using Next = Negotiation::Next;

// Numeric option types, so that unknown ones need no cast.
namespace opt {
inline constexpr std::uint32_t export_name = 1, abort = 2, list = 3, peek_export = 4, starttls = 5,
                               info = 6, go = 7, structured = 8, list_meta = 9, set_meta = 10,
                               extended = 11;
}

inline Bytes fixed_flags() { return hex("00000003"); }

inline Bytes option_header(std::uint32_t type, std::uint32_t length) {
    return joined({hex("49484156454f5054"), be32(type), be32(length)});
}

inline Bytes option(std::uint32_t type, const Bytes& data = {}) {
    return joined({option_header(type, static_cast<std::uint32_t>(data.size())), data});
}

inline Bytes wire_string(std::string_view text) {
    return joined({be32(text.size()), text_bytes(text)});
}

inline Bytes info_data(std::string_view name, std::initializer_list<std::uint16_t> infos = {}) {
    Bytes data = joined({wire_string(name), be16(infos.size())});
    for (const std::uint16_t info : infos) data = joined({data, be16(info)});
    return data;
}

inline Bytes meta_data(std::string_view name, std::initializer_list<std::string_view> queries) {
    Bytes data = joined({wire_string(name), be32(queries.size())});
    for (const std::string_view query : queries) data = joined({data, wire_string(query)});
    return data;
}

struct OptionAnswer {
    std::uint32_t option;
    std::uint32_t type;
    Bytes data;
};

// Returns the replies in `output`, and fails the test at anything else. If the last reply is one to
// EXPORT_NAME, which has no reply header, `rest` gets it.
inline std::vector<OptionAnswer> answers(const Bytes& output, Bytes* rest = nullptr) {
    const auto number = [&](std::size_t at) {
        std::uint32_t value = 0;
        for (std::size_t i = at; i < at + 4; ++i)
            value = value << 8 | std::to_integer<std::uint32_t>(output.at(i));
        return value;
    };
    const Bytes magic = hex("0003e889045565a9");
    std::vector<OptionAnswer> all;
    std::size_t at = 0;
    while (at < output.size()) {
        const auto here = output.begin() + static_cast<std::ptrdiff_t>(at);
        if (output.size() - at < 20 || !std::equal(magic.begin(), magic.end(), here)) {
            REQUIRE(rest != nullptr);
            rest->assign(here, output.end());
            return all;
        }
        const std::uint32_t length = number(at + 16);
        REQUIRE(length <= output.size() - at - 20);
        // Every error has a text.
        if ((number(at + 12) & 0x80000000U) != 0) CHECK(length != 0);
        all.push_back({number(at + 8), number(at + 12), Bytes(here + 20, here + 20 + length)});
        at += 20 + length;
    }
    return all;
}

struct Outcome {
    Next next = Next::receive;
    std::size_t used = 0;
    Bytes output;
    std::string reason;
    Asked asked;
    NegotiatedOptions negotiated;
};

// Feeds the whole input, with any number of options. `output` gets the bytes to send, and `used`
// the number of consumed bytes.
inline Next feed_all(Negotiation& negotiation, std::span<const std::byte> bytes, std::size_t& used,
                     Bytes& output) {
    used = 0;
    for (;;) {
        std::size_t part = SIZE_MAX;
        const Next next = negotiation.feed(bytes.subspan(used), part);
        REQUIRE(part <= bytes.size() - used);
        used += part;
        if (next == Next::receive) REQUIRE(used == bytes.size());
        const Bytes sent = negotiation.take_output();
        CHECK(sent.size() <= Negotiation::max_output);
        output.insert(output.end(), sent.begin(), sent.end());
        if (next != Next::more) return next;
    }
}

inline Outcome run(const ExportDirectory& directory, const Bytes& input,
                   std::size_t piece = SIZE_MAX, bool stopping = false) {
    Negotiation negotiation(directory);
    if (stopping) negotiation.shut_down();
    Outcome outcome;
    while (outcome.next == Next::receive && outcome.used < input.size()) {
        const std::size_t length = std::min(piece, input.size() - outcome.used);
        const std::span<const std::byte> all(input);
        ExactBuffer bytes(all.subspan(outcome.used, length));
        std::size_t used = SIZE_MAX;
        outcome.next = feed_all(negotiation, bytes.span(), used, outcome.output);
        outcome.used += used;
    }
    outcome.reason = negotiation.reason();
    outcome.asked = negotiation.asked();
    outcome.negotiated = negotiation.negotiated();
    return outcome;
}

// Runs the handshake in one piece, byte by byte, and in odd pieces. All results must be equal.
inline Outcome run_all_ways(const ExportDirectory& directory, const Bytes& input,
                            bool stopping = false) {
    Outcome whole = run(directory, input, SIZE_MAX, stopping);
    for (const std::size_t piece : {1, 2, 3, 7, 16, 17, 4096}) {
        CAPTURE(piece);
        const Outcome pieces = run(directory, input, piece, stopping);
        CHECK(pieces.next == whole.next);
        CHECK(pieces.used == whole.used);
        CHECK(pieces.reason == whole.reason);
        CHECK(pieces.asked.words == whole.asked.words);
        CHECK(to_hex(pieces.output) == to_hex(whole.output));
        CHECK(pieces.negotiated.headers == whole.negotiated.headers);
        CHECK(pieces.negotiated.contexts == whole.negotiated.contexts);
        CHECK(pieces.negotiated.export_info.name == whole.negotiated.export_info.name);
    }
    return whole;
}

}  // namespace gpunbd::protocol::test
