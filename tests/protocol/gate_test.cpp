#include "protocol/gate.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <variant>

namespace gpunbd::protocol::test {
namespace {

constexpr std::uint64_t size = 1ULL << 40;
constexpr std::uint64_t top = UINT64_MAX;
constexpr std::uint32_t mib = 1 << 20;
constexpr std::uint64_t cookie = 0x1234;

constexpr CommandType read = CommandType::read;
constexpr CommandType write = CommandType::write;
constexpr CommandType disc = CommandType::disc;
constexpr CommandType flush = CommandType::flush;
constexpr CommandType trim = CommandType::trim;
constexpr CommandType cache = CommandType::cache;
constexpr CommandType zeroes = CommandType::write_zeroes;
constexpr CommandType status = CommandType::block_status;

constexpr CommandType all_commands[] = {read, write, disc, flush, trim, cache, zeroes, status};

Request request(CommandType type, std::uint64_t offset = 0, std::uint32_t length = 0,
                unsigned flags = 0) {
    return {.flags = static_cast<std::uint16_t>(flags),
            .type = static_cast<std::uint16_t>(type),
            .cookie = cookie,
            .offset = offset,
            .length = length};
}

// Everything negotiated.
NegotiatedOptions full() {
    return {.structured_replies = true, .base_allocation = true, .export_info = {.size = size}};
}

// The error a request meets, none where it becomes a command; what must hold of any refusal is
// checked on the way.
Error outcome(const Request& asked, const NegotiatedOptions& negotiated) {
    const Validated validated = validate(asked, negotiated);
    REQUIRE_FALSE(std::holds_alternative<Hangup>(validated));
    if (const auto* refusal = std::get_if<Refusal>(&validated)) {
        const auto type = static_cast<CommandType>(asked.type);
        CHECK(refusal->error != Error::none);
        CHECK(refusal->cookie == asked.cookie);
        CHECK(refusal->discard == (type == write ? asked.length : 0));
        return refusal->error;
    }
    const auto& command = std::get<Command>(validated);
    CHECK(static_cast<std::uint16_t>(command.type) == asked.type);
    CHECK(command.cookie == asked.cookie);
    if (command.type != disc) {
        CHECK(command.offset == asked.offset);
        CHECK(command.length == asked.length);
        CHECK(command.offset + command.length >= command.offset);
        CHECK(command.offset + command.length <= negotiated.export_info.size);
    }
    return Error::none;
}

TEST_CASE("the range of each command, at and past the end") {
    struct Range {
        std::uint64_t offset;
        std::uint32_t length;
        bool inside;
    };
    constexpr Range ranges[] = {
        {0, 1, true},
        {0, 4096, true},
        {size - 4096, 4096, true},
        {size - 4095, 4096, false},
        {size - 4096, 4097, false},
        {size - 1, 1, true},
        {size - 1, 2, false},
        {size, 1, false},
        {size + 1, 1, false},
        {top, 1, false},
        {top - 4095, 4096, false},  // the sum is 2^64
        {top - 4096, 4096, false},
        {top, max_payload, false},
        {top - max_payload + 1, max_payload, false},
        {1ULL << 63, 1, false},
    };
    for (const CommandType type : {read, write, trim, cache, zeroes, status}) {
        const Error past_end = type == write || type == zeroes ? Error::enospc : Error::einval;
        for (const Range& range : ranges) {
            CAPTURE(type);
            CAPTURE(range.offset);
            CAPTURE(range.length);
            CHECK(outcome(request(type, range.offset, range.length), full()) ==
                  (range.inside ? Error::none : past_end));
        }
    }
}

TEST_CASE("an export that fills the 64-bit range") {
    NegotiatedOptions negotiated = full();
    negotiated.export_info.size = top;
    for (const CommandType type : {read, write, trim, cache, zeroes, status}) {
        CAPTURE(type);
        CHECK(outcome(request(type, top - 4096, 4096), negotiated) == Error::none);
        CHECK(outcome(request(type, top - 4095, 4096), negotiated) != Error::none);
        CHECK(outcome(request(type, top - max_payload + 1, max_payload), negotiated) !=
              Error::none);
    }
}

TEST_CASE("an export of no bytes") {
    NegotiatedOptions negotiated = full();
    negotiated.export_info.size = 0;
    CHECK(outcome(request(read, 0, 0), negotiated) == Error::none);
    CHECK(outcome(request(read, 0, 1), negotiated) == Error::einval);
    CHECK(outcome(request(write, 0, 1), negotiated) == Error::enospc);
}

TEST_CASE("a length of zero is a command, except for block status") {
    for (const CommandType type : {read, write, trim, cache, zeroes}) {
        CAPTURE(type);
        CHECK(outcome(request(type, 0, 0), full()) == Error::none);
        CHECK(outcome(request(type, size, 0), full()) == Error::none);
        CHECK(outcome(request(type, size + 1, 0), full()) != Error::none);
        CHECK(outcome(request(type, top, 0), full()) != Error::none);
    }
    CHECK(outcome(request(status, 0, 0), full()) == Error::einval);
}

TEST_CASE("payload limits") {
    struct Row {
        CommandType type;
        std::uint32_t length;
        unsigned flags;
        Error error;
    };
    constexpr unsigned df = command_flag::df;
    constexpr Row rows[] = {
        {read, max_payload, 0, Error::none},
        {read, max_payload + 1, 0, Error::einval},
        {read, UINT32_MAX, 0, Error::einval},
        {read, 65536, df, Error::none},
        {read, max_payload, df, Error::none},
        {read, max_payload + 1, df, Error::eoverflow},
        {write, max_payload, 0, Error::none},
        {write, max_payload + 1, 0, Error::einval},
        {write, 2 * max_payload, 0, Error::einval},
        // Nothing is carried, so the export's size is the only limit.
        {trim, UINT32_MAX, 0, Error::none},
        {cache, UINT32_MAX, 0, Error::none},
        {zeroes, UINT32_MAX, 0, Error::none},
        {status, UINT32_MAX, 0, Error::none},
    };
    for (const Row& row : rows) {
        CAPTURE(row.type);
        CAPTURE(row.length);
        CHECK(outcome(request(row.type, 0, row.length, row.flags), full()) == row.error);
    }
    // Past the end comes first: a read there is EINVAL whatever its flags.
    CHECK(outcome(request(read, size, max_payload + 1, df), full()) == Error::einval);
}

TEST_CASE("an absurd write payload hangs up, whatever else is wrong with it") {
    const auto hangs_up = [](const Request& asked, const NegotiatedOptions& negotiated) {
        return std::holds_alternative<Hangup>(validate(asked, negotiated));
    };
    NegotiatedOptions negotiated = full();
    CHECK_FALSE(hangs_up(request(write, 0, 2 * max_payload), negotiated));
    CHECK(hangs_up(request(write, 0, 2 * max_payload + 1), negotiated));
    CHECK(hangs_up(request(write, top, UINT32_MAX, 0xffff), negotiated));
    CHECK_FALSE(hangs_up(request(zeroes, 0, UINT32_MAX), negotiated));

    // Less than 2^25 bytes are never absurd, even where the maximum is small.
    negotiated.export_info.maximum_payload = mib;
    CHECK(outcome(request(write, 0, mib), negotiated) == Error::none);
    CHECK(outcome(request(write, 0, mib + 1), negotiated) == Error::einval);
    CHECK(outcome(request(write, 0, max_payload), negotiated) == Error::einval);
    CHECK(hangs_up(request(write, 0, max_payload + 1), negotiated));

    // Twice the maximum does not wrap in 32 bits.
    negotiated.export_info.maximum_payload = UINT32_MAX;
    CHECK(outcome(request(write, 0, UINT32_MAX), negotiated) == Error::none);
}

TEST_CASE("a read-only export refuses changes only") {
    NegotiatedOptions negotiated = full();
    negotiated.export_info.read_only = true;
    for (const CommandType type : {write, trim, zeroes}) {
        CAPTURE(type);
        CHECK(outcome(request(type, 0, 512), negotiated) == Error::eperm);
        CHECK(outcome(request(type, 0, 0), negotiated) == Error::eperm);
        CHECK(outcome(request(type, size, 512), negotiated) == Error::eperm);
    }
    CHECK(outcome(request(write, 0, max_payload + 1), negotiated) == Error::eperm);
    for (const CommandType type : {read, cache, status}) {
        CAPTURE(type);
        CHECK(outcome(request(type, 0, 512), negotiated) == Error::none);
    }
    CHECK(outcome(request(flush), negotiated) == Error::none);
}

TEST_CASE("which flags each command knows") {
    namespace flag = command_flag;
    struct Row {
        CommandType type;
        unsigned known;
    };
    constexpr Row rows[] = {
        {read, flag::fua | flag::df},
        {write, flag::fua},
        {flush, flag::fua},
        {trim, flag::fua},
        {cache, flag::fua},
        {zeroes, flag::fua | flag::no_hole | flag::fast_zero},
        {status, flag::fua | flag::req_one},
    };
    for (const Row& row : rows) {
        const std::uint32_t length = row.type == flush ? 0 : 512;
        for (unsigned bit = 0; bit < 16; ++bit) {
            CAPTURE(row.type);
            CAPTURE(bit);
            const unsigned flags = 1U << bit;
            CHECK(outcome(request(row.type, 0, length, flags), full()) ==
                  ((flags & row.known) != 0 ? Error::none : Error::einval));
        }
        CHECK(outcome(request(row.type, 0, length, row.known), full()) == Error::none);
    }
}

TEST_CASE("flags reach the command") {
    namespace flag = command_flag;
    const auto command = [](const Request& asked) {
        return std::get<Command>(validate(asked, full()));
    };
    CHECK(command(request(zeroes, 0, 1, flag::no_hole)).no_hole);
    CHECK_FALSE(command(request(zeroes, 0, 1, flag::no_hole)).fast_zero);
    CHECK(command(request(zeroes, 0, 1, flag::fast_zero)).fast_zero);
    CHECK_FALSE(command(request(zeroes, 0, 1, flag::fast_zero)).no_hole);
    CHECK(command(request(status, 0, 1, flag::req_one)).one_extent);
    CHECK_FALSE(command(request(status, 0, 1)).one_extent);
    CHECK(command(request(read, 0, 1, flag::df)).one_chunk);
    CHECK_FALSE(command(request(read, 0, 1, flag::fua)).one_chunk);
}

TEST_CASE("what was not negotiated is refused") {
    NegotiatedOptions plain = full();
    plain.structured_replies = false;
    plain.base_allocation = false;
    CHECK(outcome(request(read, 0, 512), plain) == Error::none);
    CHECK(outcome(request(read, 0, 512, command_flag::df), plain) == Error::einval);
    CHECK(outcome(request(status, 0, 512), plain) == Error::einval);

    NegotiatedOptions without_context = full();
    without_context.base_allocation = false;
    CHECK(outcome(request(read, 0, 512, command_flag::df), without_context) == Error::none);
    CHECK(outcome(request(status, 0, 512), without_context) == Error::einval);
}

TEST_CASE("alignment to the minimum block") {
    NegotiatedOptions negotiated = full();
    negotiated.export_info.minimum_block = 512;
    for (const CommandType type : {read, write, trim, cache, zeroes, status}) {
        CAPTURE(type);
        CHECK(outcome(request(type, 0, 512), negotiated) == Error::none);
        CHECK(outcome(request(type, size - 512, 512), negotiated) == Error::none);
        CHECK(outcome(request(type, 1, 512), negotiated) == Error::einval);
        CHECK(outcome(request(type, 256, 512), negotiated) == Error::einval);
        CHECK(outcome(request(type, 0, 511), negotiated) == Error::einval);
        CHECK(outcome(request(type, 0, 513), negotiated) == Error::einval);
        CHECK(outcome(request(type, top, 1), negotiated) == Error::einval);
    }
    // A block that is only half there is past the end.
    negotiated.export_info.size = 768;
    CHECK(outcome(request(read, 512, 512), negotiated) == Error::einval);
    CHECK(outcome(request(write, 512, 512), negotiated) == Error::enospc);
}

TEST_CASE("unknown commands are EINVAL and carry no payload") {
    for (const unsigned type : {8U, 9U, 100U, 0x7fffU, 0xffffU}) {
        CAPTURE(type);
        CHECK(outcome(request(static_cast<CommandType>(type), 0, 512), full()) == Error::einval);
        CHECK(outcome(request(static_cast<CommandType>(type)), full()) == Error::einval);
    }
}

TEST_CASE("disc is always valid, flush only with its reserved fields zero") {
    CHECK(outcome(request(disc), full()) == Error::none);
    CHECK(outcome(request(disc, top, UINT32_MAX, 0xffff), full()) == Error::none);
    CHECK(outcome(request(flush), full()) == Error::none);
    CHECK(outcome(request(flush, 1, 0), full()) == Error::einval);
    CHECK(outcome(request(flush, 0, 1), full()) == Error::einval);
}

TEST_CASE("every command with every boundary value, against a model in wide arithmetic") {
    constexpr std::uint64_t offsets[] = {0,    1,        511,       512,     4096, size - 512,
                                         size, size + 1, top - 511, top - 1, top};
    constexpr std::uint32_t lengths[] = {
        0, 1, 511, 512, 4096, max_payload, max_payload + 1, 2 * max_payload, UINT32_MAX};
    for (const std::uint32_t block : {1U, 512U}) {
        for (const bool read_only : {false, true}) {
            NegotiatedOptions negotiated = full();
            negotiated.export_info.minimum_block = block;
            negotiated.export_info.read_only = read_only;
            for (const CommandType type : all_commands) {
                for (const std::uint64_t offset : offsets) {
                    for (const std::uint32_t length : lengths) {
                        if (type == write && length > 2 * max_payload) continue;
                        const bool change = type == write || type == trim || type == zeroes;
                        const bool payload = type == write || type == read;
                        const bool inside =
                            offset <= size && std::uint64_t{length} <= size - offset;
                        bool fine = inside && offset % block == 0 && length % block == 0 &&
                                    !(change && read_only) && !(payload && length > max_payload) &&
                                    !(type == status && length == 0);
                        if (type == flush) fine = offset == 0 && length == 0;
                        if (type == disc) fine = true;
                        CAPTURE(type);
                        CAPTURE(offset);
                        CAPTURE(length);
                        const Error error = outcome(request(type, offset, length), negotiated);
                        CHECK((error == Error::none) == fine);
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace gpunbd::protocol::test
