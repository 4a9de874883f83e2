#include "protocol/request.hpp"

#include <doctest/doctest.h>

#include "tests/protocol/bytes_of.hpp"

namespace gpunbd::protocol::test {
namespace {

struct Row {
    const char* name;
    const char* wire;
    Request request;
};

constexpr Row rows[] = {
    {"read",
     "25609513 0000 0000 0102030405060708 0000000000001000 00002000",
     {.cookie = 0x0102030405060708, .offset = 0x1000, .length = 0x2000}},
    {"write with FUA",
     "25609513 0001 0001 ffffffffffffffff 0000000100000000 00000001",
     {.flags = 1, .type = 1, .cookie = UINT64_MAX, .offset = 1ULL << 32, .length = 1}},
    {"disc", "25609513 0000 0002 0000000000000000 0000000000000000 00000000", {.type = 2}},
    {"every field at its limit",
     "25609513 ffff ffff ffffffffffffffff ffffffffffffffff ffffffff",
     {.flags = 0xffff,
      .type = 0xffff,
      .cookie = UINT64_MAX,
      .offset = UINT64_MAX,
      .length = UINT32_MAX}},
    {"every byte different",
     "25609513 0102 0304 05060708090a0b0c 0d0e0f1011121314 15161718",
     {.flags = 0x0102,
      .type = 0x0304,
      .cookie = 0x05060708090a0b0c,
      .offset = 0x0d0e0f1011121314,
      .length = 0x15161718}},
};

constexpr Row extended_rows[] = {
    {"read",
     "21e41c71 0000 0000 0102030405060708 0000000000001000 0000000000002000",
     {.cookie = 0x0102030405060708, .offset = 0x1000, .length = 0x2000}},
    {"write with a payload",
     "21e41c71 0020 0001 ffffffffffffffff 0000000100000000 0000000000000001",
     {.flags = 32, .type = 1, .cookie = UINT64_MAX, .offset = 1ULL << 32, .length = 1}},
    {"trim of 4 GiB",
     "21e41c71 0000 0004 0000000000000000 0000000000000000 0000000100000000",
     {.type = 4, .length = 1ULL << 32}},
    {"every field at its limit",
     "21e41c71 ffff ffff ffffffffffffffff ffffffffffffffff ffffffffffffffff",
     {.flags = 0xffff,
      .type = 0xffff,
      .cookie = UINT64_MAX,
      .offset = UINT64_MAX,
      .length = UINT64_MAX}},
    {"every byte different",
     "21e41c71 0102 0304 05060708090a0b0c 0d0e0f1011121314 15161718191a1b1c",
     {.flags = 0x0102,
      .type = 0x0304,
      .cookie = 0x05060708090a0b0c,
      .offset = 0x0d0e0f1011121314,
      .length = 0x15161718191a1b1c}},
};

TEST_CASE("an extended request is decoded and encoded") {
    for (const Row& row : extended_rows) {
        CAPTURE(row.name);
        ExactBuffer wire(hex(row.wire));
        REQUIRE(wire.span().size() == extended_request_size);
        const auto decoded = decode_request(wire.span(), Headers::extended);
        REQUIRE(decoded.has_value());
        CHECK(*decoded == row.request);

        ExactBuffer encoded{Bytes(extended_request_size)};
        encode_extended_request(row.request, encoded.span().first<extended_request_size>());
        CHECK(to_hex(encoded.span()) == squeezed(row.wire));
    }
}

TEST_CASE("an extended request with a wrong magic is refused") {
    for (const char* magic : {"25609513", "6e8a278c", "668e33ef", "00000000", "ffffffff",
                              "21e41c70", "20e41c71", "711ce421"}) {
        CAPTURE(magic);
        ExactBuffer wire(joined({hex(magic), Bytes(extended_request_size - 4)}));
        CHECK_FALSE(decode_request(wire.span(), Headers::extended).has_value());
    }
}

TEST_CASE("a request is decoded and encoded") {
    for (const Row& row : rows) {
        CAPTURE(row.name);
        ExactBuffer wire(hex(row.wire));
        REQUIRE(wire.span().size() == request_size);
        const auto decoded = decode_request(wire.span(), Headers::simple);
        REQUIRE(decoded.has_value());
        CHECK(*decoded == row.request);

        ExactBuffer encoded{Bytes(request_size)};
        encode_request(row.request, encoded.span().first<request_size>());
        CHECK(to_hex(encoded.span()) == squeezed(row.wire));
    }
}

TEST_CASE("a request with a wrong magic is refused") {
    for (const char* magic : {"12560953", "25609514", "21e41c71", "67446698", "00000000",
                              "ffffffff", "25609512", "24609513", "13956025"}) {
        CAPTURE(magic);
        ExactBuffer wire(joined({hex(magic), Bytes(request_size - 4)}));
        CHECK_FALSE(decode_request(wire.span(), Headers::simple).has_value());
    }
}

}  // namespace
}  // namespace gpunbd::protocol::test
