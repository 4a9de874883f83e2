// In which form a reply goes: for each command, and for each thing that was negotiated.
#include "protocol/reply_encoder.hpp"

#include <doctest/doctest.h>

#include "protocol/bytes.hpp"

namespace gpunbd::protocol::test {
namespace {

constexpr std::uint64_t cookie = 0x1122334455667788;

constexpr CommandType all_types[] = {
    CommandType::read,  CommandType::write,        CommandType::flush,       CommandType::trim,
    CommandType::cache, CommandType::write_zeroes, CommandType::block_status};

ReplyEncoder encoder(bool structured) {
    NegotiatedOptions negotiated;
    negotiated.structured_replies = structured;
    return ReplyEncoder(negotiated);
}

std::uint32_t magic_of(const ReplyHeader& header) { return load_be<std::uint32_t>(header.data()); }

TEST_CASE("reply encoder: an error is a chunk wherever it can be one") {
    ReplyHeader header;
    CHECK(encoder(true).error(header, cookie, Error::eio) == chunk_header_size + 6);
    CHECK(magic_of(header) == structured_reply_magic);
    CHECK(load_be<std::uint64_t>(header.data() + 8) == cookie);
    CHECK(load_be<std::uint32_t>(header.data() + chunk_header_size) ==
          static_cast<std::uint32_t>(Error::eio));
    CHECK(encoder(false).error(header, cookie, Error::eio) == 16);
    CHECK(magic_of(header) == simple_reply_magic);
    CHECK(load_be<std::uint32_t>(header.data() + 4) == static_cast<std::uint32_t>(Error::eio));
    CHECK(load_be<std::uint64_t>(header.data() + 8) == cookie);
}

TEST_CASE("reply encoder: success is simple, but of a READ once replies are structured") {
    for (const bool structured : {false, true}) {
        for (const CommandType type : all_types) {
            CAPTURE(static_cast<int>(type));
            ReplyHeader header;
            const std::size_t length =
                encoder(structured).success(header, {.type = type, .cookie = cookie});
            const bool chunk = structured && type == CommandType::read;
            CHECK(length == (chunk ? chunk_header_size : 16));
            CHECK(magic_of(header) == (chunk ? structured_reply_magic : simple_reply_magic));
            CHECK(load_be<std::uint64_t>(header.data() + 8) == cookie);
        }
    }
}

TEST_CASE("reply encoder: a READ is split only into chunks, and only where it may be") {
    Command read{.type = CommandType::read, .cookie = cookie, .offset = 77, .length = 5};
    CHECK(encoder(true).splits(read));
    CHECK_FALSE(encoder(false).splits(read));
    read.one_chunk = true;
    CHECK_FALSE(encoder(true).splits(read));

    ReplyHeader header;
    CHECK(encoder(true).whole(header, read) == chunk_header_size + 8);
    CHECK(magic_of(header) == structured_reply_magic);
    CHECK(load_be<std::uint16_t>(header.data() + 4) == chunk_flag_done);
    CHECK(load_be<std::uint32_t>(header.data() + 16) == 8 + 5);
    CHECK(load_be<std::uint64_t>(header.data() + chunk_header_size) == 77);
    CHECK(encoder(false).whole(header, read) == 16);
    CHECK(magic_of(header) == simple_reply_magic);
}

}  // namespace
}  // namespace gpunbd::protocol::test
