// The kernel's interface for ublk servers, as in linux/ublk_cmd.h of Linux 6.12. Older headers lack
// UBLK_F_USER_COPY, so it is repeated here.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace gpunbd::server::ublk {

// UBLK_F_*
namespace feature {
constexpr std::uint64_t user_recovery = 1U << 3;
constexpr std::uint64_t user_recovery_reissue = 1U << 4;
constexpr std::uint64_t ioctl_encoding = 1U << 6;
constexpr std::uint64_t user_copy = 1U << 7;
}  // namespace feature

// UBLK_S_DEV_*
enum class DeviceState : std::uint16_t { dead = 0, live = 1, quiesced = 2 };

// struct ublksrv_ctrl_cmd
struct ControlCommand {
    std::uint32_t device = ~0U;
    std::uint16_t queue = 0xffff;
    std::uint16_t length = 0;   // of the buffer
    std::uint64_t address = 0;  // of the buffer
    std::uint64_t data = 0;
    std::uint16_t path_length = 0;
    std::uint16_t padding = 0;
    std::uint32_t reserved = 0;
};
static_assert(sizeof(ControlCommand) == 32);

// struct ublksrv_ctrl_dev_info
struct DeviceInfo {
    std::uint16_t queues = 0;
    std::uint16_t depth = 0;
    DeviceState state = DeviceState::dead;
    std::uint16_t padding = 0;
    std::uint32_t max_request = 0;  // bytes of payload
    std::uint32_t id = ~0U;         // ~0: the kernel chooses
    std::int32_t server = -1;       // process id
    std::uint32_t padding2 = 0;
    std::uint64_t features = 0;
    std::uint64_t mark = 0;  // ublksrv_flags, which the kernel does not interpret
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::uint64_t reserved[2] = {};
};
static_assert(sizeof(DeviceInfo) == 64);

// struct ublk_params
struct Parameters {
    static constexpr std::uint32_t basic = 1U << 0;
    static constexpr std::uint32_t discard = 1U << 1;
    static constexpr std::uint32_t read_only = 1U << 0;       // UBLK_ATTR_READ_ONLY
    static constexpr std::uint32_t volatile_cache = 1U << 2;  // UBLK_ATTR_VOLATILE_CACHE
    static constexpr std::uint32_t fua = 1U << 3;             // UBLK_ATTR_FUA

    std::uint32_t length = sizeof(Parameters);
    std::uint32_t types = basic | discard;
    std::uint32_t attributes = 0;
    std::uint8_t logical_block_shift = 0;
    std::uint8_t physical_block_shift = 0;
    std::uint8_t best_shift = 0;
    std::uint8_t minimum_shift = 0;
    std::uint32_t max_sectors = 0;
    std::uint32_t chunk_sectors = 0;
    std::uint64_t sectors = 0;
    std::uint64_t virtual_boundary = 0;
    std::uint32_t discard_alignment = 0;
    std::uint32_t discard_granularity = 0;
    std::uint32_t max_discard_sectors = 0;
    std::uint32_t max_zero_sectors = 0;
    std::uint16_t max_discard_segments = 1;
    std::uint16_t reserved = 0;
    std::uint32_t device_numbers[4] = {};
    std::uint32_t padding = 0;
};
static_assert(sizeof(Parameters) == 80);

// Commands on /dev/ublk-control.
namespace control {
constexpr std::uint32_t get_info = _IOR('u', 0x02, ControlCommand);
constexpr std::uint32_t add = _IOWR('u', 0x04, ControlCommand);
constexpr std::uint32_t remove = _IOWR('u', 0x05, ControlCommand);
constexpr std::uint32_t start = _IOWR('u', 0x06, ControlCommand);
constexpr std::uint32_t stop = _IOWR('u', 0x07, ControlCommand);
constexpr std::uint32_t set_parameters = _IOWR('u', 0x08, ControlCommand);
constexpr std::uint32_t start_recovery = _IOWR('u', 0x10, ControlCommand);
constexpr std::uint32_t end_recovery = _IOWR('u', 0x11, ControlCommand);
constexpr std::uint32_t get_features = _IOR('u', 0x13, ControlCommand);
}  // namespace control

// struct ublksrv_io_cmd
struct QueueCommand {
    std::uint16_t queue = 0;
    std::uint16_t tag = 0;
    std::int32_t result = 0;    // of COMMIT_AND_FETCH: bytes, or a negative errno
    std::uint64_t address = 0;  // 0 with USER_COPY
};
static_assert(sizeof(QueueCommand) == 16);

// Commands on /dev/ublkcN.
constexpr std::uint32_t fetch_request = _IOWR('u', 0x20, QueueCommand);
constexpr std::uint32_t commit_and_fetch = _IOWR('u', 0x21, QueueCommand);

// struct ublksrv_io_desc
struct Descriptor {
    std::uint32_t operation_and_flags = 0;
    std::uint32_t sectors = 0;
    std::uint64_t start_sector = 0;
    std::uint64_t address = 0;
};
static_assert(sizeof(Descriptor) == 24);

constexpr std::uint32_t sector_shift = 9;
constexpr std::uint32_t max_depth = 4096;

// UBLK_IO_OP_*, UBLK_IO_F_FUA, UBLK_IO_F_NOUNMAP
enum class Op : std::uint8_t { read = 0, write = 1, flush = 2, discard = 3, write_zeroes = 5 };
constexpr std::uint32_t operation_mask = 0xff;
constexpr std::uint32_t fua = 1U << 13;
constexpr std::uint32_t no_unmap = 1U << 15;

// Where the payload of a request is in the character device, with USER_COPY.
constexpr std::uint64_t payload_position(std::uint16_t queue, std::uint16_t tag) {
    return 0x80000000U + (std::uint64_t{queue} << 41) + (std::uint64_t{tag} << 25);
}

}  // namespace gpunbd::server::ublk
