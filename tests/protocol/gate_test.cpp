#include "protocol/gate.hpp"

#include "protocol/bytes.hpp"
#include "tests/protocol/bytes_of.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

constexpr std::uint64_t size = 1ULL << 40;
constexpr std::uint64_t top = UINT64_MAX;
constexpr std::uint64_t gib4 = 1ULL << 32;
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

Request request(CommandType type, std::uint64_t offset = 0, std::uint64_t length = 0,
                unsigned flags = 0) {
    return {.flags = static_cast<std::uint16_t>(flags),
            .type = static_cast<std::uint16_t>(type),
            .cookie = cookie,
            .offset = offset,
            .length = length};
}

// Everything is negotiated except extended headers.
NegotiatedOptions full() {
    return {.headers = Headers::structured,
            .contexts = MetaContexts::all(),
            .export_info = {.size = size}};
}

NegotiatedOptions extended() {
    NegotiatedOptions negotiated = full();
    negotiated.headers = Headers::extended;
    return negotiated;
}

// Returns the error of the request, or none if it becomes a command. Also checks the invariants of
// refusals.
Error outcome(const Request& asked, const NegotiatedOptions& negotiated) {
    const Validated validated = validate(asked, negotiated);
    REQUIRE_FALSE(std::holds_alternative<Hangup>(validated));
    if (const auto* refusal = std::get_if<Refusal>(&validated)) {
        const auto type = static_cast<CommandType>(asked.type);
        CHECK(refusal->error != Error::none);
        CHECK(refusal->cookie == asked.cookie);
        CHECK(refusal->offset == asked.offset);
        const bool has_text = !refusal->text.empty() && refusal->text.size() <= 64;
        CHECK(has_text);
        const bool payload = negotiated.headers == Headers::extended
                                 ? (asked.flags & command_flag::payload_len) != 0
                                 : type == write;
        CHECK(refusal->discard == (payload ? asked.length : 0));
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

bool hangs_up(const Request& asked, const NegotiatedOptions& negotiated) {
    return std::holds_alternative<Hangup>(validate(asked, negotiated));
}

TEST_CASE("every command with every boundary value, against a model in wide arithmetic") {
    // Offsets are each of these edges, and values near it. Below 0 they wrap around.
    constexpr std::uint64_t edges[] = {0, 1024, size, 1ULL << 63};
    constexpr std::uint64_t below[] = {0, 1, 511, 512, 513, max_payload, top};
    constexpr std::uint64_t lengths[] = {
        0, 1, 2, 511, 512, 513, max_payload, max_payload + 1, 2 * max_payload, UINT32_MAX};
    constexpr std::uint64_t extended_lengths[] = {gib4, size, size + 1, top - 511, top};
    NegotiatedOptions negotiated;
    ExportInfo& info = negotiated.export_info;
    const auto expected = [&](CommandType type, std::uint64_t offset, std::uint64_t length) {
        const bool change = type == write || type == trim || type == zeroes;
        const bool inside = offset <= info.size && length <= info.size - offset;
        const bool aligned = offset % info.minimum_block == 0 && length % info.minimum_block == 0;
        if (type == disc) return Error::none;
        if (change && info.read_only) return Error::eperm;
        if (type == flush) return offset == 0 && length == 0 ? Error::none : Error::einval;
        if (type == write && length > max_payload) return Error::einval;
        if (type == status && length == 0) return Error::einval;
        if (!aligned) return Error::einval;
        if (!inside) return type == write || type == zeroes ? Error::enospc : Error::einval;
        return type == read && length > max_payload ? Error::einval : Error::none;
    };
    const auto check = [&](CommandType type, std::uint64_t offset, std::uint64_t length) {
        if (type == write && length > 2 * max_payload) return;  // hangs up
        const bool has_flag = type == write && negotiated.headers == Headers::extended;
        CAPTURE(type);
        CAPTURE(offset);
        CAPTURE(length);
        const Request asked =
            request(type, offset, length, has_flag ? command_flag::payload_len : 0U);
        CHECK(outcome(asked, negotiated) == expected(type, offset, length));
    };
    const auto check_all = [&](CommandType type) {
        for (const std::uint64_t edge : edges) {
            for (const std::uint64_t distance : below) {
                for (const std::uint64_t length : lengths) {
                    check(type, edge - distance, length);
                }
                if (negotiated.headers != Headers::extended) continue;
                for (const std::uint64_t length : extended_lengths) {
                    check(type, edge - distance, length);
                }
            }
        }
    };
    // A block that is only partly within the export of 768 bytes is past its end.
    for (const std::uint64_t export_size : {std::uint64_t{0}, std::uint64_t{768}, size, top}) {
        for (const std::uint32_t block : {1U, 512U}) {
            for (const bool read_only : {false, true}) {
                for (const NegotiatedOptions& agreed : {full(), extended()}) {
                    negotiated = agreed;
                    info.size = export_size;
                    info.minimum_block = block;
                    info.read_only = read_only;
                    CAPTURE(static_cast<int>(agreed.headers));
                    CAPTURE(export_size);
                    CAPTURE(block);
                    CAPTURE(read_only);
                    for (const CommandType type : all_commands) check_all(type);
                }
            }
        }
    }
}

TEST_CASE("a READ with DF beyond the maximum payload is EOVERFLOW, if it is within the export") {
    constexpr unsigned df = command_flag::df;
    CHECK(outcome(request(read, 0, max_payload, df), full()) == Error::none);
    CHECK(outcome(request(read, 0, max_payload + 1, df), full()) == Error::eoverflow);
    CHECK(outcome(request(read, size, max_payload + 1, df), full()) == Error::einval);
    CHECK(outcome(request(read, 0, gib4, df), extended()) == Error::eoverflow);
    CHECK(outcome(request(read, 0, top, df), extended()) == Error::einval);
}

TEST_CASE("an absurd write payload hangs up, whatever else is wrong with the request") {
    NegotiatedOptions negotiated = full();
    CHECK_FALSE(hangs_up(request(write, 0, 2 * max_payload), negotiated));
    CHECK(hangs_up(request(write, 0, 2 * max_payload + 1), negotiated));
    CHECK(hangs_up(request(write, top, UINT32_MAX, 0xffff), negotiated));
    CHECK_FALSE(hangs_up(request(zeroes, 0, UINT32_MAX), negotiated));

    // Less than 2^25 bytes are never absurd, even if the maximum is small.
    negotiated.export_info.maximum_payload = mib;
    CHECK(outcome(request(write, 0, mib), negotiated) == Error::none);
    CHECK(outcome(request(write, 0, mib + 1), negotiated) == Error::einval);
    CHECK(outcome(request(write, 0, max_payload), negotiated) == Error::einval);
    CHECK(hangs_up(request(write, 0, max_payload + 1), negotiated));

    // Twice the maximum does not overflow 32 bits.
    negotiated.export_info.maximum_payload = UINT32_MAX;
    CHECK(outcome(request(write, 0, UINT32_MAX), negotiated) == Error::none);
}

TEST_CASE("each command accepts only its own flags") {
    namespace flag = command_flag;
    constexpr std::pair<CommandType, unsigned> rows[] = {
        {read, flag::fua | flag::df},
        {write, flag::fua},
        {flush, flag::fua},
        {trim, flag::fua},
        {cache, flag::fua},
        {zeroes, flag::fua | flag::no_hole | flag::fast_zero},
        {status, flag::fua | flag::req_one},
    };
    for (const auto& [type, known] : rows) {
        const std::uint32_t length = type == flush ? 0 : 512;
        for (unsigned bit = 0; bit < 16; ++bit) {
            CAPTURE(type);
            CAPTURE(bit);
            const unsigned flags = 1U << bit;
            CHECK(outcome(request(type, 0, length, flags), full()) ==
                  ((flags & known) != 0 ? Error::none : Error::einval));
        }
        CHECK(outcome(request(type, 0, length, known), full()) == Error::none);
    }
    // A DISC has no reply that could refuse it.
    CHECK(outcome(request(disc, top, UINT32_MAX, 0xffff), full()) == Error::none);
}

TEST_CASE("the command contains the flags of the request") {
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

TEST_CASE("a request that needs an option that was not negotiated is refused") {
    NegotiatedOptions plain = full();
    plain.headers = Headers::simple;
    plain.contexts = {};
    CHECK(outcome(request(read, 0, 512), plain) == Error::none);
    CHECK(outcome(request(read, 0, 512, command_flag::df), plain) == Error::einval);
    CHECK(outcome(request(status, 0, 512), plain) == Error::einval);

    NegotiatedOptions without_context = full();
    without_context.contexts = {};
    CHECK(outcome(request(read, 0, 512, command_flag::df), without_context) == Error::none);
    CHECK(outcome(request(status, 0, 512), without_context) == Error::einval);
}

TEST_CASE("extended: which requests have a payload, and which may have one") {
    namespace flag = command_flag;
    constexpr unsigned payload = flag::payload_len;
    struct Row {
        const char* name;
        CommandType type;
        std::uint64_t length;
        unsigned flags;
        Error error;
    };
    constexpr Row rows[] = {
        {"a write with its payload and FUA", write, 512, payload | flag::fua, Error::none},
        {"a write without its payload", write, 512, 0, Error::einval},
        {"a write of nothing without the flag", write, 0, 0, Error::einval},
        {"a write, and a flag of another command", write, 512, payload | flag::df, Error::einval},
        {"a read with a payload", read, 512, payload, Error::einval},
        {"a read with a payload of nothing", read, 0, payload, Error::einval},
        {"a trim with a payload", trim, 512, payload, Error::einval},
        {"zeroes with a payload", zeroes, 512, payload, Error::einval},
        {"cache with a payload", cache, 512, payload, Error::einval},
        {"flush with a payload", flush, 512, payload, Error::einval},
        {"an unknown command with a payload", static_cast<CommandType>(99), 512, payload,
         Error::einval},
        {"an unknown command without one", static_cast<CommandType>(99), 512, 0, Error::einval},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        CHECK(outcome(request(row.type, 0, row.length, row.flags), extended()) == row.error);
    }
    // Without extended headers the flag is unknown.
    CHECK(outcome(request(write, 0, 512, payload), full()) == Error::einval);
    CHECK(outcome(request(read, 0, 512, payload), full()) == Error::einval);
    CHECK(outcome(request(status, 0, 512, payload), full()) == Error::einval);
}

TEST_CASE("extended: an absurd payload hangs up, whatever the command") {
    constexpr unsigned payload = command_flag::payload_len;
    for (const CommandType type :
         {read, write, flush, trim, cache, zeroes, status, static_cast<CommandType>(99)}) {
        CAPTURE(static_cast<int>(type));
        CHECK_FALSE(hangs_up(request(type, 0, 2 * max_payload, payload), extended()));
        for (const std::uint64_t length :
             {std::uint64_t{2} * max_payload + 1, std::uint64_t{1} << 32, top}) {
            CAPTURE(length);
            CHECK(hangs_up(request(type, 0, length, payload), extended()));
            CHECK_FALSE(hangs_up(request(type, 0, length), extended()));
        }
    }
    CHECK_FALSE(hangs_up(request(disc, 0, top, payload), extended()));
}

std::vector<std::byte> status_payload(std::uint64_t length,
                                      std::initializer_list<std::uint32_t> contexts) {
    std::vector<std::byte> payload;
    append_be(payload, length);
    for (const std::uint32_t context : contexts) append_be(payload, context);
    return payload;
}

TEST_CASE("extended: the size of a status payload is checked before it is received") {
    constexpr unsigned payload = command_flag::payload_len;
    for (const std::uint64_t length :
         {0, 1, 4, 8, 11, 13, 15, 17, 19, 21, 25, 29, 32, 4096, 1 << 20}) {
        CAPTURE(length);
        CHECK(outcome(request(status, 0, length, payload), extended()) == Error::einval);
    }
    for (const std::uint64_t length : {12, 16, 20, 24, 28}) {
        const Validated expected = validate(request(status, 0, length, payload), extended());
        REQUIRE(std::holds_alternative<StatusPayload>(expected));
        CHECK(std::get<StatusPayload>(expected).length == length);
        CHECK(max_status_payload >= length);
    }

    NegotiatedOptions without_context = extended();
    without_context.contexts = {};
    CHECK(outcome(request(status, 0, 12, payload), without_context) == Error::einval);
}

TEST_CASE("extended: a status payload is decoded and validated") {
    constexpr unsigned payload = command_flag::payload_len;
    struct Row {
        const char* name;
        std::uint64_t offset;
        unsigned flags;
        std::vector<std::byte> payload;
        Error error;
        MetaContexts contexts = MetaContext::base_allocation;
    };
    MetaContexts two = MetaContext::base_allocation;
    two.add(MetaContext::device);
    const Row rows[] = {
        {"a range", 4096, 0, status_payload(4096, {0}), Error::none},
        {"of the other context", 4096, 0, status_payload(4096, {1}), Error::none,
         MetaContext::device},
        {"of two", 4096, 0, status_payload(4096, {0, 1}), Error::none, two},
        {"of two, the other way round", 4096, 0, status_payload(4096, {1, 0}), Error::none, two},
        {"of all", 4096, 0, status_payload(4096, {2, 0, 3, 1, 4}), Error::none,
         MetaContexts::all()},
        {"all of it", 0, 0, status_payload(size, {0}), Error::none},
        {"one extent", 0, command_flag::req_one, status_payload(size, {0}), Error::none},
        {"no bytes", 0, 0, status_payload(0, {0}), Error::einval},
        {"past the end", 1, 0, status_payload(size, {0}), Error::einval},
        {"the longest", 1, 0, status_payload(top, {0}), Error::einval},
        {"an unknown context", 0, 0, status_payload(4096, {5}), Error::einval},
        {"one known, one unknown", 0, 0, status_payload(4096, {0, 256}), Error::einval},
        {"the last context there could be", 0, 0, status_payload(4096, {UINT32_MAX}),
         Error::einval},
        {"a flag of another command", 0, command_flag::df, status_payload(4096, {0}),
         Error::einval},
        {"a context twice", 0, 0, status_payload(4096, {0, 0}), Error::einval},
        {"another twice", 0, 0, status_payload(4096, {1, 1}), Error::einval},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const Request asked = request(status, row.offset, row.payload.size(), payload | row.flags);
        const ExactBuffer content(row.payload);
        const Validated validated = validate_status(asked, content.span(), extended());
        if (const auto* refusal = std::get_if<Refusal>(&validated)) {
            CHECK(refusal->error == row.error);
            CHECK(refusal->cookie == cookie);
            CHECK(refusal->offset == row.offset);
            CHECK(refusal->discard == 0);
            CHECK_FALSE(refusal->text.empty());
            continue;
        }
        CHECK(row.error == Error::none);
        const auto& command = std::get<Command>(validated);
        CHECK(command.type == status);
        CHECK(command.offset == row.offset);
        CHECK(command.length == load_be<std::uint64_t>(row.payload.data()));
        CHECK(command.one_extent == ((row.flags & command_flag::req_one) != 0));
        CHECK(command.contexts == row.contexts);
    }
}

TEST_CASE("extended: a status payload may only name contexts that were agreed") {
    const Request asked = request(status, 0, 12, command_flag::payload_len);
    for (const MetaContext agreed : all_contexts) {
        for (const MetaContext named : all_contexts) {
            NegotiatedOptions negotiated = extended();
            negotiated.contexts = agreed;
            const ExactBuffer content(status_payload(4096, {id_of(named)}));
            const Validated validated = validate_status(asked, content.span(), negotiated);
            CHECK(std::holds_alternative<Command>(validated) == (agreed == named));
        }
        NegotiatedOptions negotiated = full();
        negotiated.contexts = agreed;
        CHECK(std::get<Command>(validate(request(status, 0, 512), negotiated)).contexts ==
              MetaContexts(agreed));
    }
}

TEST_CASE("unknown commands are EINVAL and carry no payload") {
    for (const unsigned type : {8U, 9U, 100U, 0x7fffU, 0xffffU}) {
        CAPTURE(type);
        CHECK(outcome(request(static_cast<CommandType>(type), 0, 512), full()) == Error::einval);
        CHECK(outcome(request(static_cast<CommandType>(type)), full()) == Error::einval);
    }
}

}  // namespace
}  // namespace gpunbd::protocol::test
