#include "protocol/reply.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>

#include "tests/protocol/bytes_of.hpp"

namespace gpunbd::protocol::test {
namespace {

constexpr std::uint64_t cookie = 0x0102030405060708;
constexpr std::uint64_t offset = 0x1112131415161718;
constexpr ReplyTo compact{.cookie = cookie, .offset = 0x2122232425262728};
constexpr ReplyTo extended{
    .headers = Headers::extended, .cookie = cookie, .offset = 0x2122232425262728};

struct Row {
    const char* name;
    std::function<std::size_t(ReplyHeader&)> encode;
    const char* wire;
};

const Row rows[] = {
    {"simple, success", [](auto& out) { return encode_simple_reply(out, Error::none, cookie); },
     "67446698 00000000 0102030405060708"},
    {"simple, error", [](auto& out) { return encode_simple_reply(out, Error::eshutdown, cookie); },
     "67446698 0000006c 0102030405060708"},
    {"data", [](auto& out) { return encode_data_chunk(out, compact, offset, 1, false); },
     "668e33ef 0000 0001 0102030405060708 00000009 1112131415161718"},
    {"data, last, 32 MiB",
     [](auto& out) { return encode_data_chunk(out, compact, offset, max_payload, true); },
     "668e33ef 0001 0001 0102030405060708 02000008 1112131415161718"},
    {"data, the longest that fits",
     [](auto& out) { return encode_data_chunk(out, compact, offset, UINT32_MAX - 8, true); },
     "668e33ef 0001 0001 0102030405060708 ffffffff 1112131415161718"},
    {"hole", [](auto& out) { return encode_hole_chunk(out, compact, offset, 0x2000, false); },
     "668e33ef 0000 0002 0102030405060708 0000000c 1112131415161718 00002000"},
    {"hole, last", [](auto& out) { return encode_hole_chunk(out, compact, 0, UINT32_MAX, true); },
     "668e33ef 0001 0002 0102030405060708 0000000c 0000000000000000 ffffffff"},
    {"done", [](auto& out) { return encode_done_chunk(out, compact); },
     "668e33ef 0001 0000 0102030405060708 00000000"},
    {"error",
     [](auto& out) { return encode_error_chunk(out, compact, ErrorChunk::error, Error::eio, 0); },
     "668e33ef 0001 8001 0102030405060708 00000006 00000005 0000"},
    {"error, and a message follows",
     [](auto& out) {
         return encode_error_chunk(out, compact, ErrorChunk::error, Error::eio, max_string);
     },
     "668e33ef 0001 8001 0102030405060708 00001006 00000005 1000"},
    {"extended data", [](auto& out) { return encode_data_chunk(out, extended, offset, 1, false); },
     "6e8a278c 0000 0001 0102030405060708 2122232425262728 0000000000000009 1112131415161718"},
    {"extended data, the longest that fits",
     [](auto& out) { return encode_data_chunk(out, extended, offset, UINT32_MAX - 8, true); },
     "6e8a278c 0001 0001 0102030405060708 2122232425262728 00000000ffffffff 1112131415161718"},
    {"extended hole", [](auto& out) { return encode_hole_chunk(out, extended, 7, 0x2000, true); },
     "6e8a278c 0001 0002 0102030405060708 2122232425262728 000000000000000c"
     "0000000000000007 00002000"},
    {"extended done", [](auto& out) { return encode_done_chunk(out, extended); },
     "6e8a278c 0001 0000 0102030405060708 2122232425262728 0000000000000000"},
    {"extended error, and a message follows",
     [](auto& out) {
         return encode_error_chunk(out, extended, ErrorChunk::error, Error::einval, 3);
     },
     "6e8a278c 0001 8001 0102030405060708 2122232425262728 0000000000000009 00000016 0003"},
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

TEST_CASE("each error has its number on the wire") {
    struct Value {
        Error error;
        const char* wire;
    };
    constexpr Value values[] = {
        {Error::eperm, "00000001"},   {Error::eio, "00000005"},
        {Error::enomem, "0000000c"},  {Error::einval, "00000016"},
        {Error::enospc, "0000001c"},  {Error::eoverflow, "0000004b"},
        {Error::enotsup, "0000005f"}, {Error::eshutdown, "0000006c"},
    };
    for (const Value& value : values) {
        CAPTURE(value.wire);
        ReplyHeader out;
        CHECK(encode_simple_reply(out, value.error, 0) == simple_reply_size);
        CHECK(to_hex(std::span(out).subspan(4, 4)) == value.wire);
        CHECK(encode_error_chunk(out, {}, ErrorChunk::error, value.error, 0) ==
              chunk_header_size + 6);
        CHECK(to_hex(std::span(out).subspan(chunk_header_size, 4)) == value.wire);
    }
}

TEST_CASE("an error with an offset: the offset follows the message and is counted") {
    ReplyHeader out;
    for (const ReplyTo& reply : {compact, extended}) {
        const std::size_t header =
            encode_error_chunk(out, reply, ErrorChunk::error_offset, Error::eio, 3);
        const std::size_t before = chunk_header_size_of(reply.headers);
        CHECK(header == before + 6);
        CHECK(to_hex(std::span(out).subspan(4, 4)) == "00018002");
        CHECK(to_hex(std::span(out).subspan(before - 4, 10)) == squeezed("00000011 00000005 0003"));
    }
    CHECK(encode_error_offset(out, 0x0102030405060708) == 8);
    CHECK(to_hex(std::span(out).first(8)) == "0102030405060708");
}

TEST_CASE("block status extents are appended") {
    std::vector<std::byte> out = hex("abcd");
    const Extent extents[] = {{4096, 0}, {UINT32_MAX, state_hole | state_zero}};
    append_block_status(out, compact, 7, extents, true);
    append_block_status(out, compact, 8, std::span(extents).first(1), false);
    CHECK(to_hex(out) == squeezed("abcd"
                                  "668e33ef 0001 0005 0102030405060708 00000014 00000007"
                                  "00001000 00000000 ffffffff 00000003"
                                  "668e33ef 0000 0005 0102030405060708 0000000c 00000008"
                                  "00001000 00000000"));
}

TEST_CASE("extended block status extents may exceed 4 GiB") {
    std::vector<std::byte> out = hex("abcd");
    const Extent extents[] = {{4096, 0}, {1ULL << 40, state_hole | state_zero}};
    append_block_status(out, extended, 7, extents, true);
    CHECK(to_hex(out) ==
          squeezed("abcd"
                   "6e8a278c 0001 0006 0102030405060708 2122232425262728 0000000000000028"
                   "00000007 00000002"
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
        append_block_status(out, compact, 0, extents, true);
        CHECK(out.size() == chunk_header_size + 4 + 8 * count.reported);
        CHECK(to_hex(std::span(out).subspan(16, 4)) == to_hex(be32(4 + 8 * count.reported)));
        out.clear();
        append_block_status(out, extended, 0, extents, true);
        CHECK(out.size() == extended_chunk_header_size + 8 + 16 * count.reported);
        CHECK(to_hex(std::span(out).subspan(24, 8)) == to_hex(be64(8 + 16 * count.reported)));
        CHECK(to_hex(std::span(out).subspan(36, 4)) == to_hex(be32(count.reported)));
    }
}

}  // namespace
}  // namespace gpunbd::protocol::test
