// The form of each reply, for each command and each combination of negotiated options.
#include "protocol/reply_encoder.hpp"

#include <doctest/doctest.h>

#include "protocol/bytes.hpp"

namespace gpunbd::protocol::test {
namespace {

constexpr std::uint64_t cookie = 0x1122334455667788;

constexpr CommandType all_types[] = {
    CommandType::read,  CommandType::write,        CommandType::flush,       CommandType::trim,
    CommandType::cache, CommandType::write_zeroes, CommandType::block_status};

constexpr Headers all_headers[] = {Headers::simple, Headers::structured, Headers::extended};

ReplyEncoder encoder(Headers headers) {
    return ReplyEncoder(NegotiatedOptions{.headers = headers});
}

std::uint32_t magic_of(const ReplyHeader& header) { return load_be<std::uint32_t>(header.data()); }

std::uint32_t chunk_magic(Headers headers) {
    return headers == Headers::extended ? extended_reply_magic : structured_reply_magic;
}

TEST_CASE("reply encoder: an error is a chunk with a text if chunks are possible") {
    const Refusal refusal{
        .error = Error::eio, .cookie = cookie, .offset = 0x7777, .text = "it broke"};
    ReplyHeader header;
    for (const Headers headers : {Headers::structured, Headers::extended}) {
        CAPTURE(static_cast<int>(headers));
        const std::size_t size = chunk_header_size_of(headers);
        const auto encoded = encoder(headers).error(header, refusal);
        CHECK(encoded.header_length == size + 6);
        CHECK(encoded.text == "it broke");
        CHECK(magic_of(header) == chunk_magic(headers));
        CHECK(load_be<std::uint64_t>(header.data() + 8) == cookie);
        CHECK(load_be<std::uint32_t>(header.data() + size) ==
              static_cast<std::uint32_t>(Error::eio));
        CHECK(load_be<std::uint16_t>(header.data() + size + 4) == refusal.text.size());
        CHECK(load_be<std::uint32_t>(header.data() + size - 4) == 6 + refusal.text.size());
    }
    CHECK(load_be<std::uint64_t>(header.data() + 16) == 0x7777);

    const auto simple = encoder(Headers::simple).error(header, refusal);
    CHECK(simple.header_length == 16);
    CHECK(simple.text.empty());
    CHECK(magic_of(header) == simple_reply_magic);
    CHECK(load_be<std::uint32_t>(header.data() + 4) == static_cast<std::uint32_t>(Error::eio));
    CHECK(load_be<std::uint64_t>(header.data() + 8) == cookie);
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

TEST_CASE("reply encoder: an extended chunk always repeats the offset of the request") {
    const Command read{.type = CommandType::read, .cookie = cookie, .offset = 77, .length = 500};
    ReplyHeader header;
    encoder(Headers::extended).data(header, read, 100, 3, false);
    CHECK(load_be<std::uint64_t>(header.data() + 16) == 77);
    CHECK(load_be<std::uint64_t>(header.data() + 32) == 100);
    encoder(Headers::extended).hole(header, read, 103, 4, true);
    CHECK(load_be<std::uint64_t>(header.data() + 16) == 77);
    CHECK(load_be<std::uint64_t>(header.data() + 32) == 103);
    std::vector<std::byte> status;
    const Extent extent{.length = 500};
    encoder(Headers::extended)
        .block_status(status, read, MetaContext::base_allocation, {&extent, 1}, true);
    CHECK(load_be<std::uint64_t>(status.data() + 16) == 77);
}

TEST_CASE("an error chunk of a READ contains the offset of the failure") {
    const Refusal known{.error = Error::eio, .cookie = cookie, .text = "why", .failed_at = 4096};
    const Refusal unknown{.error = Error::eio, .cookie = cookie, .text = "why"};
    for (const Headers headers : {Headers::simple, Headers::structured, Headers::extended}) {
        ReplyHeader header;
        CHECK(encoder(headers).error(header, known).offset_follows == (headers != Headers::simple));
        CHECK_FALSE(encoder(headers).error(header, unknown).offset_follows);
    }
}

}  // namespace
}  // namespace gpunbd::protocol::test
