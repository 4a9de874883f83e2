// A client's side of the handshake: parses replies, and runs a whole handshake in pieces of any
// size.
#pragma once

#include "protocol/negotiation.hpp"
#include "tests/protocol/bytes_of.hpp"
#include "tests/protocol/plain_export_directory.hpp"
#include "tests/protocol/wire.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {

using Next = Negotiation::Next;

namespace opt = wire::opt;
using wire::info_data;
using wire::meta_data;
using wire::option;
using wire::option_header;
using wire::string_field;

// Numeric types of option replies.
inline constexpr std::uint32_t ack = 1, unsup = 0x80000001, policy = 0x80000002,
                               invalid = 0x80000003, tls_reqd = 0x80000005, unknown = 0x80000006,
                               shutdown = 0x80000007, too_big = 0x80000009,
                               ext_header_reqd = 0x8000000a;

struct OptionAnswer {
    std::uint32_t option;
    std::uint32_t type;
    Bytes data;
};

// Returns the replies in `output`, and fails the test at anything else. If the last reply is one to
// EXPORT_NAME, which has no reply header, `rest` gets it.
inline std::vector<OptionAnswer> answers(const Bytes& output, Bytes* rest = nullptr) {
    std::vector<OptionAnswer> all;
    std::span<const std::byte> left = output;
    while (!left.empty()) {
        const auto header = left.size() < wire::option_reply_size
                                ? std::nullopt
                                : wire::parse_option_reply(left.first<wire::option_reply_size>());
        if (!header) {
            REQUIRE(rest != nullptr);
            rest->assign(left.begin(), left.end());
            return all;
        }
        left = left.subspan(wire::option_reply_size);
        REQUIRE(header->length <= left.size());
        if (header->is_error()) CHECK_MESSAGE(header->length != 0, "every error has a text");
        const auto data = left.first(header->length);
        all.push_back({header->option, static_cast<std::uint32_t>(header->type),
                       Bytes(data.begin(), data.end())});
        left = left.subspan(header->length);
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

// The client's side of a negotiation, after its flags.
class Talk {
 public:
    explicit Talk(const ExportDirectory& directory, TlsMode mode = TlsMode::off)
        : negotiation(directory, mode) {
        say(wire::client_flags());
    }

    // The bytes to send are then in `output`.
    Next say(const Bytes& bytes) {
        std::size_t used = 0;
        output.clear();
        next = feed_all(negotiation, bytes, used, output);
        return next;
    }
    // The type of the last reply to the option.
    std::uint32_t ask(std::uint32_t type, const Bytes& data = {}) {
        say(option(type, data));
        const auto all = answers(output);
        return all.empty() ? 0 : all.back().type;
    }
    void enter_tls() {
        REQUIRE(ask(opt::starttls) == ack);
        REQUIRE(next == Next::start_tls);
        negotiation.enter_tls();
    }
    std::size_t listed() {
        REQUIRE(ask(opt::list) == ack);
        return answers(output).size() - 1;
    }

    Negotiation negotiation;
    Next next = Next::receive;
    Bytes output;
};

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
    if (outcome.next == Next::transmit) outcome.negotiated = negotiation.negotiated();
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
