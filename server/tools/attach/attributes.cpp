#include "server/tools/attach/attributes.hpp"

#include <linux/genetlink.h>
#include <linux/netlink.h>

#include <algorithm>

namespace gpunbd::attach {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

}  // namespace

GenericMessage::GenericMessage(std::uint16_t family, std::uint8_t command, std::uint8_t version) {
    nlmsghdr header{};
    header.nlmsg_type = family;
    header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    append(bytes_of(header));
    append(bytes_of(genlmsghdr{.cmd = command, .version = version, .reserved = 0}));
}

void GenericMessage::append(std::span<const std::byte> bytes) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    if (!bytes.empty()) std::memcpy(&bytes_[at], bytes.data(), bytes.size());
}

void GenericMessage::pad() { bytes_.resize(NLMSG_ALIGN(bytes_.size())); }

void GenericMessage::attribute(int type, std::span<const std::byte> payload) {
    nlattr header{};
    header.nla_type = static_cast<std::uint16_t>(type);
    header.nla_len = static_cast<std::uint16_t>(NLA_HDRLEN + payload.size());
    append(bytes_of(header));
    append(payload);
    pad();
}

void GenericMessage::text(int type, std::string_view value) {
    std::vector<std::byte> with_end(value.size() + 1);
    if (!value.empty()) std::memcpy(with_end.data(), value.data(), value.size());
    attribute(type, with_end);
}

void GenericMessage::nested(int type, const std::function<void()>& content) {
    const std::size_t start = bytes_.size();
    attribute(type | NLA_F_NESTED, {});
    content();
    const auto length = static_cast<std::uint16_t>(bytes_.size() - start);
    std::memcpy(&bytes_[start] + offsetof(nlattr, nla_len), &length, sizeof length);
}

std::span<const std::byte> GenericMessage::finished(std::uint32_t sequence) {
    const auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_seq), &sequence, sizeof sequence);
    return bytes_;
}

void each_attribute(Attributes from, const std::function<void(int, Attributes)>& take) {
    while (from.size() >= NLA_HDRLEN) {
        nlattr header{};
        std::memcpy(&header, from.data(), sizeof header);
        if (header.nla_len < NLA_HDRLEN || header.nla_len > from.size()) return;
        take(header.nla_type & NLA_TYPE_MASK,
             from.subspan(NLA_HDRLEN, header.nla_len - std::size_t{NLA_HDRLEN}));
        from = from.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), from.size()));
    }
}

std::optional<Attributes> find_attribute(Attributes from, int type) {
    std::optional<Attributes> found;
    each_attribute(from, [&](int each, Attributes payload) {
        if (each == type) found = payload;
    });
    return found;
}

}  // namespace gpunbd::attach
