// The bytes of each reply header, and its form for each command and negotiated option.
#include "protocol/reply_encoder.hpp"

#include "protocol/bytes.hpp"
#include "tests/protocol/bytes_of.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

constexpr std::uint64_t cookie = 0x0102030405060708;
constexpr std::uint64_t offset = 0x1112131415161718;
constexpr Command command{.type = CommandType::read,
                          .cookie = cookie,
                          .offset = 0x1011121314151617,
                          .length = std::uint64_t{1} << 58,
                          .contexts = MetaContexts::all()};

ReplyEncoder encoder(Headers headers) {
    return ReplyEncoder(NegotiatedOptions{.headers = headers});
}
const ReplyEncoder simple = encoder(Headers::simple);
const ReplyEncoder compact = encoder(Headers::structured);
const ReplyEncoder extended = encoder(Headers::extended);

Refusal refusal(Error error, std::string_view text = {}) {
    return {.error = error, .cookie = cookie, .offset = command.offset, .text = text};
}

constexpr CommandType all_types[] = {
    CommandType::read,  CommandType::write,        CommandType::flush,       CommandType::trim,
    CommandType::cache, CommandType::write_zeroes, CommandType::block_status};

constexpr Headers all_headers[] = {Headers::simple, Headers::structured, Headers::extended};

std::uint32_t magic_of(const ReplyHeader& header) { return load_be<std::uint32_t>(header.data()); }

std::uint32_t chunk_magic(Headers headers) {
    return headers == Headers::extended ? extended_reply_magic : structured_reply_magic;
}

struct Row {
    const char* name;
    std::function<std::size_t(ReplyHeader&)> encode;
    const char* wire;
};

const Row rows[] = {
    {"simple, success", [](auto& out) { return simple.success(out, command); },
     "67446698 00000000 0102030405060708"},
    {"simple, error",
     [](auto& out) { return simple.error(out, refusal(Error::eshutdown)).header_length; },
     "67446698 0000006c 0102030405060708"},
    {"data", [](auto& out) { return compact.data(out, command, offset, 1, false); },
     "668e33ef 0000 0001 0102030405060708 00000009 1112131415161718"},
    {"data, last, 32 MiB",
     [](auto& out) { return compact.data(out, command, offset, max_payload, true); },
     "668e33ef 0001 0001 0102030405060708 02000008 1112131415161718"},
    {"data, the longest that fits",
     [](auto& out) { return compact.data(out, command, offset, UINT32_MAX - 8, true); },
     "668e33ef 0001 0001 0102030405060708 ffffffff 1112131415161718"},
    {"hole", [](auto& out) { return compact.hole(out, command, offset, 0x2000, false); },
     "668e33ef 0000 0002 0102030405060708 0000000c 1112131415161718 00002000"},
    {"hole, last", [](auto& out) { return compact.hole(out, command, offset, UINT32_MAX, true); },
     "668e33ef 0001 0002 0102030405060708 0000000c 1112131415161718 ffffffff"},
    {"done",
     [](auto& out) { return compact.success(out, {.type = CommandType::read, .cookie = cookie}); },
     "668e33ef 0001 0000 0102030405060708 00000000"},
    {"error", [](auto& out) { return compact.error(out, refusal(Error::eio)).header_length; },
     "668e33ef 0001 8001 0102030405060708 00000006 00000005 0000"},
    {"error, and a message follows",
     [](auto& out) {
         return compact.error(out, refusal(Error::eio, std::string(max_string, 'x'))).header_length;
     },
     "668e33ef 0001 8001 0102030405060708 00001006 00000005 1000"},
    {"extended data", [](auto& out) { return extended.data(out, command, offset, 1, false); },
     "6e8a278c 0000 0001 0102030405060708 1011121314151617 0000000000000009 1112131415161718"},
    {"extended data, the longest that fits",
     [](auto& out) { return extended.data(out, command, offset, UINT32_MAX - 8, true); },
     "6e8a278c 0001 0001 0102030405060708 1011121314151617 00000000ffffffff 1112131415161718"},
    {"extended hole", [](auto& out) { return extended.hole(out, command, offset, 0x2000, true); },
     "6e8a278c 0001 0002 0102030405060708 1011121314151617 000000000000000c"
     "1112131415161718 00002000"},
    {"extended done", [](auto& out) { return extended.success(out, command); },
     "6e8a278c 0001 0000 0102030405060708 1011121314151617 0000000000000000"},
    {"extended error, and a message follows",
     [](auto& out) { return extended.error(out, refusal(Error::einval, "why")).header_length; },
     "6e8a278c 0001 8001 0102030405060708 1011121314151617 0000000000000009 00000016 0003"},
};

TEST_CASE("reply headers are encoded, and bytes after them are not changed") {
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const auto out = std::make_unique<ReplyHeader>();
        out->fill(std::byte{0xa5});
        const std::size_t size = row.encode(*out);
        REQUIRE(size <= max_reply_header);
        CHECK(to_hex(std::span(*out).first(size)) == squeezed(row.wire));
        CHECK(to_hex(std::span(*out).subspan(size)) ==
              to_hex(Bytes(max_reply_header - size, std::byte{0xa5})));
    }
}

TEST_CASE("reply encoder: success is a simple reply, except for chunked READs and extended mode") {
    for (const Headers headers : all_headers) {
        for (const CommandType type : all_types) {
            CAPTURE(static_cast<int>(headers));
            CAPTURE(static_cast<int>(type));
            ReplyHeader header;
            const std::size_t length = encoder(headers).success(
                header, {.type = type, .cookie = cookie, .offset = 0x7777});
            const bool chunk = headers == Headers::extended ||
                               (headers == Headers::structured && type == CommandType::read);
            CHECK(length == (chunk ? chunk_header_size_of(headers) : 16));
            CHECK(magic_of(header) == (chunk ? chunk_magic(headers) : simple_reply_magic));
            CHECK(load_be<std::uint64_t>(header.data() + 8) == cookie);
            if (headers == Headers::extended)
                CHECK(load_be<std::uint64_t>(header.data() + 16) == 0x7777);
        }
    }
}

TEST_CASE("reply encoder: a READ is split only if chunks are negotiated and DF is not set") {
    Command read{.type = CommandType::read, .cookie = cookie, .offset = 77, .length = 5};
    for (const Headers headers : all_headers) {
        CAPTURE(static_cast<int>(headers));
        read.one_chunk = false;
        CHECK(encoder(headers).splits(read) == (headers != Headers::simple));
        read.one_chunk = true;
        CHECK_FALSE(encoder(headers).splits(read));

        ReplyHeader header;
        if (headers == Headers::simple) {
            CHECK(encoder(headers).whole(header, read) == 16);
            CHECK(magic_of(header) == simple_reply_magic);
            continue;
        }
        const std::size_t size = chunk_header_size_of(headers);
        CHECK(encoder(headers).whole(header, read) == size + 8);
        CHECK(magic_of(header) == chunk_magic(headers));
        CHECK(load_be<std::uint16_t>(header.data() + 4) == chunk_flag_done);
        CHECK(load_be<std::uint32_t>(header.data() + size - 4) == 8 + 5);
        CHECK(load_be<std::uint64_t>(header.data() + size) == 77);
    }
}

TEST_CASE("an error with an offset: the offset follows the message and is counted") {
    ReplyHeader out;
    Refusal placed = refusal(Error::eio, "why");
    placed.failed_at = 0x0102030405060708;
    for (const Headers headers : {Headers::structured, Headers::extended}) {
        const auto encoded = encoder(headers).error(out, placed);
        const std::size_t before = chunk_header_size_of(headers);
        CHECK(encoded.header_length == before + 6);
        CHECK(encoded.offset_follows);
        CHECK(to_hex(std::span(out).subspan(4, 4)) == "00018002");
        CHECK(to_hex(std::span(out).subspan(before - 4, 10)) == squeezed("00000011 00000005 0003"));
    }
    CHECK_FALSE(compact.error(out, refusal(Error::eio, "why")).offset_follows);
    CHECK_FALSE(simple.error(out, placed).offset_follows);
    CHECK(ReplyEncoder::error_offset(out, 0x0102030405060708) == 8);
    CHECK(to_hex(std::span(out).first(8)) == "0102030405060708");
}

TEST_CASE("block status extents are appended") {
    std::vector<std::byte> out = hex("abcd");
    const Extent extents[] = {{4096, 0}, {UINT32_MAX, state_hole | state_zero}};
    compact.block_status(out, command, MetaContext::base_allocation, extents, true);
    compact.block_status(out, command, MetaContext::device, std::span(extents).first(1), false);
    CHECK(to_hex(out) == squeezed("abcd"
                                  "668e33ef 0001 0005 0102030405060708 00000014 00000000"
                                  "00001000 00000000 ffffffff 00000003"
                                  "668e33ef 0000 0005 0102030405060708 0000000c 00000001"
                                  "00001000 00000000"));
}

TEST_CASE("extended block status extents may exceed 4 GiB") {
    std::vector<std::byte> out = hex("abcd");
    const Extent extents[] = {{4096, 0}, {1ULL << 40, state_hole | state_zero}};
    extended.block_status(out, command, MetaContext::base_allocation, extents, true);
    CHECK(to_hex(out) ==
          squeezed("abcd"
                   "6e8a278c 0001 0006 0102030405060708 1011121314151617 0000000000000028"
                   "00000000 00000002"
                   "0000000000001000 0000000000000000 0000010000000000 0000000000000003"));
}

TEST_CASE("a block status chunk holds at most max_extents") {
    struct Count {
        std::size_t given;
        std::size_t reported;
    };
    for (const Count count :
         {Count{max_extents - 1, max_extents - 1}, Count{max_extents, max_extents},
          Count{max_extents + 1, max_extents}}) {
        CAPTURE(count.given);
        std::vector<std::byte> out;
        const std::vector<Extent> extents(count.given, Extent{512, 0});
        compact.block_status(out, command, MetaContext::base_allocation, extents, true);
        CHECK(out.size() == chunk_header_size + 4 + 8 * count.reported);
        CHECK(to_hex(std::span(out).subspan(16, 4)) == to_hex(be32(4 + 8 * count.reported)));
        out.clear();
        extended.block_status(out, command, MetaContext::base_allocation, extents, true);
        CHECK(out.size() == extended_chunk_header_size + 8 + 16 * count.reported);
        CHECK(to_hex(std::span(out).subspan(24, 8)) == to_hex(be64(8 + 16 * count.reported)));
        CHECK(to_hex(std::span(out).subspan(36, 4)) == to_hex(be32(count.reported)));
    }
}

}  // namespace
}  // namespace gpunbd::protocol::test
