#include "server/tools/attach/kernel_client.hpp"

#include <linux/genetlink.h>
#include <linux/nbd-netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>

#include "protocol/constants.hpp"

// In linux/nbd-netlink.h since Linux 5.14.
static_assert(NBD_ATTR_MAX >= 10, "the kernel's headers are too old: NBD_ATTR_BACKEND_IDENTIFIER");

namespace gpunbd::attach {

namespace {

constexpr std::uint32_t smallest_block = 512;
constexpr std::uint32_t largest_block = 4096;  // a page: the limit of the kernel

std::optional<std::uint32_t> group_named(Attributes family, std::string_view name) {
    std::optional<std::uint32_t> id;
    const auto groups = find_attribute(family, CTRL_ATTR_MCAST_GROUPS);
    if (!groups) return id;
    each_attribute(*groups, [&](int, Attributes group) {
        const auto called = find_attribute(group, CTRL_ATTR_MCAST_GRP_NAME);
        if (!called || called->size() != name.size() + 1) return;  // with the terminating zero
        if (std::memcmp(called->data(), name.data(), name.size()) != 0) return;
        id = find_number<std::uint32_t>(group, CTRL_ATTR_MCAST_GRP_ID);
    });
    return id;
}

// A connection that counts as dead may have unsent writes. The kernel sends them again over the
// next connection, so TCP must not deliver the old copies after newer writes.
void forget_unsent_at_end(int socket) {
    const linger none{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void add_sockets(GenericMessage& message, std::span<const int> sockets) {
    message.nested(NBD_ATTR_SOCKETS, [&] {
        for (const int each : sockets) {
            forget_unsent_at_end(each);
            message.nested(NBD_SOCK_ITEM,
                           [&] { message.number(NBD_SOCK_FD, static_cast<std::uint32_t>(each)); });
        }
    });
}

std::uint64_t count_of(std::chrono::seconds time) {
    return static_cast<std::uint64_t>(time.count());
}

}  // namespace

std::optional<Failure> fit_for_kernel(client::ExportFacts& facts,
                                      std::optional<std::uint32_t> wanted) {
    if ((facts.flags & protocol::transmission_flag::has_flags) == 0 || facts.size == 0) {
        return Failure{"the server does not report the size of the export"};
    }
    facts.block_size = std::max(facts.block_size, smallest_block);
    if (facts.block_size > largest_block || !std::has_single_bit(facts.block_size)) {
        return Failure{"the kernel does not support blocks of " + std::to_string(facts.block_size) +
                       " bytes"};
    }
    if (!wanted) return std::nullopt;
    if (*wanted < facts.block_size) {
        return Failure{"the server does not accept blocks below " +
                       std::to_string(facts.block_size) +
                       " bytes; pass that to --block-size, or omit the flag"};
    }
    facts.block_size = *wanted;
    return std::nullopt;
}

Expected<KernelClient, Failure> KernelClient::open() {
    auto requests = GenericSocket::open();
    if (!requests) return requests.error();
    auto events = GenericSocket::open();
    if (!events) return events.error();

    GenericMessage family_request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 1);
    family_request.text(CTRL_ATTR_FAMILY_NAME, NBD_GENL_FAMILY_NAME);
    const auto answer = requests->request(std::move(family_request));
    if (answer.error == ENOENT)
        return Failure{"the kernel has no NBD client; load it: modprobe nbd"};
    if (answer.error != 0) return failure("netlink", answer.error);
    const auto family = find_number<std::uint16_t>(answer.attributes, CTRL_ATTR_FAMILY_ID);
    const auto group = group_named(answer.attributes, NBD_GENL_MCAST_GROUP_NAME);
    if (!family || !group)
        return Failure{
            "the kernel's NBD client does not report dead connections; use a newer kernel"};
    if (const int error = events->join(*group)) {
        return failure("netlink", error);
    }
    return KernelClient(std::move(*requests), std::move(*events), *family);
}

GenericMessage KernelClient::message(int command) const {
    return {family_, static_cast<std::uint8_t>(command), NBD_GENL_VERSION};
}

int KernelClient::connect(std::uint32_t device, const client::ExportFacts& facts,
                          KernelTimeouts timeouts, std::span<const OwnedFd> sockets) {
    std::vector<int> numbers;
    for (const auto& each : sockets) numbers.push_back(each.get());
    GenericMessage request = message(NBD_CMD_CONNECT);
    request.number(NBD_ATTR_INDEX, device);
    request.number(NBD_ATTR_SIZE_BYTES, facts.size);
    request.number(NBD_ATTR_BLOCK_SIZE_BYTES, std::uint64_t{facts.block_size});
    request.number(NBD_ATTR_SERVER_FLAGS, std::uint64_t{facts.flags});
    request.number(NBD_ATTR_DEAD_CONN_TIMEOUT, count_of(timeouts.dead_connection));
    if (timeouts.request.count() != 0) {
        request.number(NBD_ATTR_TIMEOUT, count_of(timeouts.request));
    }
    if (!facts.instance.empty()) request.text(NBD_ATTR_BACKEND_IDENTIFIER, facts.instance);
    add_sockets(request, numbers);
    return requests_.request(std::move(request)).error;
}

int KernelClient::reconnect(std::uint32_t device, const std::string& instance, int socket) {
    GenericMessage request = message(NBD_CMD_RECONFIGURE);
    request.number(NBD_ATTR_INDEX, device);
    if (!instance.empty()) request.text(NBD_ATTR_BACKEND_IDENTIFIER, instance);
    add_sockets(request, std::span(&socket, 1));
    return requests_.request(std::move(request)).error;
}

int KernelClient::resize(std::uint32_t device, const std::string& instance, std::uint64_t size) {
    GenericMessage request = message(NBD_CMD_RECONFIGURE);
    request.number(NBD_ATTR_INDEX, device);
    request.number(NBD_ATTR_SIZE_BYTES, size);
    request.text(NBD_ATTR_BACKEND_IDENTIFIER, instance);
    return requests_.request(std::move(request)).error;
}

int KernelClient::disconnect(std::uint32_t device) {
    GenericMessage request = message(NBD_CMD_DISCONNECT);
    request.number(NBD_ATTR_INDEX, device);
    return requests_.request(std::move(request)).error;
}

bool KernelClient::attached(std::uint32_t device) {
    GenericMessage request = message(NBD_CMD_STATUS);
    request.number(NBD_ATTR_INDEX, device);
    const GenericReply reply = requests_.request(std::move(request));
    if (reply.error != 0) return true;  // for example ENOBUFS if memory is short
    const auto list = find_attribute(reply.attributes, NBD_ATTR_DEVICE_LIST);
    const auto item = list ? find_attribute(*list, NBD_DEVICE_ITEM) : std::nullopt;
    return item && find_number<std::uint8_t>(*item, NBD_DEVICE_CONNECTED).value_or(0) != 0;
}

unsigned KernelClient::dead_connections(std::uint32_t device, unsigned all) {
    unsigned dead = 0;
    while (const auto event = events_.next_event()) {
        const auto* received = std::get_if<GenericEvent>(&*event);
        if (received == nullptr) {
            dead = all;
        } else if (received->command == NBD_CMD_LINK_DEAD &&
                   find_number<std::uint32_t>(received->attributes, NBD_ATTR_INDEX) == device) {
            ++dead;
        }
    }
    return std::min(dead, all);
}

}  // namespace gpunbd::attach
