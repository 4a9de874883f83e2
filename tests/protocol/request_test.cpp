#include "protocol/request.hpp"

#include "tests/protocol/bytes_of.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

struct Row {
    Headers headers;
    const char* wire;
    Request request;
};
constexpr Headers simple = Headers::simple;
constexpr Headers extended = Headers::extended;

constexpr Row rows[] = {
    {simple, "25609513 0000 0002 0000000000000000 0000000000000000 00000000", {.type = 2}},
    {simple,
     "25609513 ffff ffff ffffffffffffffff ffffffffffffffff ffffffff",
     {.flags = 0xffff,
      .type = 0xffff,
      .cookie = UINT64_MAX,
      .offset = UINT64_MAX,
      .length = UINT32_MAX}},
    {simple,
     "25609513 0102 0304 05060708090a0b0c 0d0e0f1011121314 15161718",
     {.flags = 0x0102,
      .type = 0x0304,
      .cookie = 0x05060708090a0b0c,
      .offset = 0x0d0e0f1011121314,
      .length = 0x15161718}},
    {extended,
     "21e41c71 0000 0004 0000000000000000 0000000000000000 0000000100000000",
     {.type = 4, .length = 1ULL << 32}},
    {extended,
     "21e41c71 ffff ffff ffffffffffffffff ffffffffffffffff ffffffffffffffff",
     {.flags = 0xffff,
      .type = 0xffff,
      .cookie = UINT64_MAX,
      .offset = UINT64_MAX,
      .length = UINT64_MAX}},
    {extended,
     "21e41c71 0102 0304 05060708090a0b0c 0d0e0f1011121314 15161718191a1b1c",
     {.flags = 0x0102,
      .type = 0x0304,
      .cookie = 0x05060708090a0b0c,
      .offset = 0x0d0e0f1011121314,
      .length = 0x15161718191a1b1c}},
};

TEST_CASE("a request is decoded and encoded") {
    for (const Row& row : rows) {
        CAPTURE(row.wire);
        ExactBuffer wire(hex(row.wire));
        REQUIRE(wire.span().size() ==
                (row.headers == extended ? extended_request_size : request_size));
        const auto decoded = decode_request(wire.span(), row.headers);
        REQUIRE(decoded.has_value());
        CHECK(*decoded == row.request);

        ExactBuffer encoded{Bytes(wire.span().size())};
        if (row.headers == extended)
            encode_extended_request(row.request, encoded.span().first<extended_request_size>());
        else
            encode_request(row.request, encoded.span().first<request_size>());
        CHECK(to_hex(encoded.span()) == squeezed(row.wire));
    }
}

TEST_CASE("a request with a wrong magic is refused") {
    const auto decodes = [](const char* magic, std::size_t size, Headers headers) {
        const ExactBuffer wire(joined({hex(magic), Bytes(size - 4)}));
        return decode_request(wire.span(), headers).has_value();
    };
    for (const char* magic :
         {"12560953", "25609514", "25609512", "24609513", "13956025", "67446698", "6e8a278c",
          "668e33ef", "00000000", "ffffffff", "21e41c70", "20e41c71", "711ce421"}) {
        CAPTURE(magic);
        CHECK_FALSE(decodes(magic, request_size, simple));
        CHECK_FALSE(decodes(magic, extended_request_size, extended));
    }
    CHECK_FALSE(decodes("21e41c71", request_size, simple));
    CHECK_FALSE(decodes("25609513", extended_request_size, extended));
}

}  // namespace
}  // namespace gpunbd::protocol::test
