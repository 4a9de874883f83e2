// The numbers of the NBD protocol (NetworkBlockDevice/nbd, doc/proto.md), under the names the
// specification gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpunbd::protocol {

// "Values": magics.
inline constexpr std::uint64_t init_magic = 0x4e42444d41474943;    // "NBDMAGIC"
inline constexpr std::uint64_t option_magic = 0x49484156454f5054;  // "IHAVEOPT"
inline constexpr std::uint64_t option_reply_magic = 0x3e889045565a9;
inline constexpr std::uint32_t request_magic = 0x25609513;
inline constexpr std::uint32_t simple_reply_magic = 0x67446698;
inline constexpr std::uint32_t structured_reply_magic = 0x668e33ef;
inline constexpr std::uint32_t extended_request_magic = 0x21e41c71;
inline constexpr std::uint32_t extended_reply_magic = 0x6e8a278c;

// "Handshake flags" (server) and "Client flags": the same two bits in both directions.
inline constexpr std::uint16_t flag_fixed_newstyle = 1 << 0;
inline constexpr std::uint16_t flag_no_zeroes = 1 << 1;

enum class OptionType : std::uint32_t {
    export_name = 1,
    abort = 2,
    list = 3,
    starttls = 5,
    info = 6,
    go = 7,
    structured_reply = 8,
    list_meta_context = 9,
    set_meta_context = 10,
    extended_headers = 11,
};

enum class OptionReply : std::uint32_t {
    ack = 1,
    server = 2,
    info = 3,
    meta_context = 4,
    err_unsup = (1U << 31) + 1,
    err_policy = (1U << 31) + 2,
    err_invalid = (1U << 31) + 3,
    err_platform = (1U << 31) + 4,
    err_tls_reqd = (1U << 31) + 5,
    err_unknown = (1U << 31) + 6,
    err_shutdown = (1U << 31) + 7,
    err_block_size_reqd = (1U << 31) + 8,
    err_too_big = (1U << 31) + 9,
    err_ext_header_reqd = (1U << 31) + 10,
};

enum class InfoType : std::uint16_t { export_ = 0, name = 1, description = 2, block_size = 3 };

// "Transmission flags".
namespace transmission_flag {
inline constexpr std::uint16_t has_flags = 1 << 0;
inline constexpr std::uint16_t read_only = 1 << 1;
inline constexpr std::uint16_t send_flush = 1 << 2;
inline constexpr std::uint16_t send_fua = 1 << 3;
inline constexpr std::uint16_t rotational = 1 << 4;
inline constexpr std::uint16_t send_trim = 1 << 5;
inline constexpr std::uint16_t send_write_zeroes = 1 << 6;
inline constexpr std::uint16_t send_df = 1 << 7;
inline constexpr std::uint16_t can_multi_conn = 1 << 8;
inline constexpr std::uint16_t send_resize = 1 << 9;
inline constexpr std::uint16_t send_cache = 1 << 10;
inline constexpr std::uint16_t send_fast_zero = 1 << 11;
inline constexpr std::uint16_t block_status_payload = 1 << 12;
}  // namespace transmission_flag

// "Request types".
enum class CommandType : std::uint16_t {
    read = 0,
    write = 1,
    disc = 2,
    flush = 3,
    trim = 4,
    cache = 5,
    write_zeroes = 6,
    block_status = 7,
};
inline constexpr std::size_t command_types = 8;  // from 0, without gaps

namespace command_flag {
inline constexpr std::uint16_t fua = 1 << 0;
inline constexpr std::uint16_t no_hole = 1 << 1;
inline constexpr std::uint16_t df = 1 << 2;
inline constexpr std::uint16_t req_one = 1 << 3;
inline constexpr std::uint16_t fast_zero = 1 << 4;
inline constexpr std::uint16_t payload_len = 1 << 5;
}  // namespace command_flag

// "Structured reply types" and their one flag.
enum class ChunkType : std::uint16_t {
    none = 0,
    offset_data = 1,
    offset_hole = 2,
    block_status = 5,
    block_status_ext = 6,
    error = (1U << 15) + 1,
    error_offset = (1U << 15) + 2,
};
inline constexpr std::uint16_t chunk_flag_done = 1 << 0;

// "Error values" on the wire.
enum class Error : std::uint32_t {
    none = 0,
    eperm = 1,
    eio = 5,
    enomem = 12,
    einval = 22,
    enospc = 28,
    eoverflow = 75,
    enotsup = 95,
    eshutdown = 108,
};

// base:allocation states ("The base: metadata context namespace").
inline constexpr std::uint32_t state_hole = 1 << 0;
inline constexpr std::uint32_t state_zero = 1 << 1;

// Limits of the specification, or of this server if the specification has none. Each is checked
// before memory is allocated.
inline constexpr std::uint32_t max_string = 4096;             // export names, context names
inline constexpr std::uint32_t max_option_data = 16 * 1024;   // longer: drained, ERR_TOO_BIG
inline constexpr std::uint32_t max_drained_option = 1 << 20;  // longer: hard close (DoS)
inline constexpr std::uint32_t max_options = 1024;            // per handshake: hard close after
inline constexpr std::uint32_t max_payload = 32 * 1024 * 1024;
inline constexpr std::uint32_t preferred_block = 4096;
inline constexpr std::size_t request_size = 28;
inline constexpr std::size_t simple_reply_size = 16;
inline constexpr std::size_t chunk_header_size = 20;
inline constexpr std::size_t extended_request_size = 32;
inline constexpr std::size_t extended_chunk_header_size = 32;

// The specification's names of numbers on the wire, for the log.

std::string_view name_of(CommandType type);
std::string_view name_of(Error error);

}  // namespace gpunbd::protocol
