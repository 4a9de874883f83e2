#include "server/attach/handshake.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "config/quote.hpp"
#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"

namespace gpunbd::attach {
namespace {

using protocol::load_be;
using protocol::OptionReply;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t smallest_block = 512;
constexpr std::uint32_t largest_block = 4096;  // a page: the kernel takes no larger one

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<Failure> greet(const ByteStream& stream) {
    std::array<std::byte, 18> greeting{};
    if (auto failed = stream.receive(greeting)) return failed;
    if (load_be<std::uint64_t>(&greeting[0]) != protocol::init_magic ||
        load_be<std::uint64_t>(&greeting[8]) != protocol::option_magic) {
        return Failure{"this is no NBD server, or one of the old style"};
    }
    const auto flags = load_be<std::uint16_t>(&greeting[16]);
    if ((flags & protocol::flag_fixed_newstyle) == 0) return Failure{"the server knows no GO"};
    Bytes answer;
    protocol::append_be<std::uint32_t>(
        answer, flags & (protocol::flag_fixed_newstyle | protocol::flag_no_zeroes));
    return stream.send(answer);
}

std::optional<Failure> ask_to_go(const ByteStream& stream, std::string_view name) {
    constexpr std::array wanted{protocol::InfoType::description, protocol::InfoType::block_size};
    Bytes data;
    protocol::append_be(data, static_cast<std::uint32_t>(name.size()));
    for (const char each : name) data.push_back(static_cast<std::byte>(each));
    protocol::append_be(data, static_cast<std::uint16_t>(wanted.size()));
    for (const auto each : wanted) protocol::append_be(data, static_cast<std::uint16_t>(each));
    Bytes option;
    protocol::append_be(option, protocol::option_magic);
    protocol::append_be(option, static_cast<std::uint32_t>(protocol::OptionType::go));
    protocol::append_be(option, static_cast<std::uint32_t>(data.size()));
    option.insert(option.end(), data.begin(), data.end());
    return stream.send(option);
}

struct OptionAnswer {
    OptionReply kind{};
    Bytes data;
};

Or<OptionAnswer> receive_answer(const ByteStream& stream) {
    std::array<std::byte, 20> header{};
    if (auto failed = stream.receive(header)) return *failed;
    const auto length = load_be<std::uint32_t>(&header[16]);
    if (load_be<std::uint64_t>(&header[0]) != protocol::option_reply_magic ||
        load_be<std::uint32_t>(&header[8]) !=
            static_cast<std::uint32_t>(protocol::OptionType::go) ||
        length > protocol::max_option_data) {
        return Failure{"the server answers GO with something else"};
    }
    OptionAnswer out{.kind = OptionReply{load_be<std::uint32_t>(&header[12])},
                     .data = Bytes(length)};
    if (auto failed = stream.receive(out.data)) return *failed;
    return out;
}

// False where it is shorter than its kind has to be.
bool take_info(std::span<const std::byte> info, ExportFacts& facts) {
    if (info.size() < 2) return false;
    const auto kind = protocol::InfoType{load_be<std::uint16_t>(info.data())};
    const auto rest = info.subspan(2);
    switch (kind) {
        case protocol::InfoType::export_:
            if (rest.size() != 10) return false;
            facts.size = load_be<std::uint64_t>(rest.data());
            facts.flags = load_be<std::uint16_t>(&rest[8]);
            return true;
        case protocol::InfoType::block_size:
            if (rest.size() != 12) return false;
            facts.block_size = std::max(load_be<std::uint32_t>(rest.data()), smallest_block);
            facts.max_request = load_be<std::uint32_t>(&rest[8]);
            return true;
        case protocol::InfoType::description:
            facts.instance = instance_in(text_of(rest));
            return true;
        default:
            return true;  // a server may tell what nobody asked for
    }
}

std::optional<Failure> unusable(const ExportFacts& facts) {
    if ((facts.flags & protocol::transmission_flag::has_flags) == 0 || facts.size == 0) {
        return Failure{"the server does not say how large the export is"};
    }
    if (facts.block_size > largest_block || !std::has_single_bit(facts.block_size)) {
        return Failure{"the kernel has no blocks of " + std::to_string(facts.block_size) +
                       " bytes"};
    }
    return std::nullopt;
}

std::optional<Failure> set_block_size(ExportFacts& facts, std::optional<std::uint32_t> wanted) {
    if (!wanted) return std::nullopt;
    if (*wanted < facts.block_size) {
        return Failure{"the server takes no blocks below " + std::to_string(facts.block_size) +
                       " bytes; give --block-size that, or leave it out"};
    }
    facts.block_size = *wanted;
    return std::nullopt;
}

Failure refusal(OptionReply kind, std::span<const std::byte> data, std::string_view name) {
    switch (kind) {
        case OptionReply::err_unsup:
            return Failure{"the server knows no GO: it is too old for the kernel to come back to"};
        case OptionReply::err_tls_reqd:
            return Failure{
                "the server demands TLS, of which the kernel's client knows nothing; put a relay "
                "in between: nbdkit -U /run/relay.sock nbd uri=nbds://..., and attach "
                "nbd+unix:///?socket=/run/relay.sock"};
        default:
            break;
    }
    std::string text = "the server refuses export " + config::in_quotes(name);
    if (!data.empty()) text += ": " + config::in_quotes(text_of(data));
    if (kind == OptionReply::err_unknown) text += " (nbdinfo --list tells which there are)";
    return {std::move(text)};
}

bool is_id(std::string_view text) {
    constexpr std::size_t digits = 32;
    return text.size() == digits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string instance_in(std::string_view description) {
    constexpr std::string_view alone = "instance ";
    constexpr std::string_view behind_text = " (instance ";
    if (description.starts_with(alone) && is_id(description.substr(alone.size()))) {
        return std::string(description.substr(alone.size()));
    }
    const std::size_t start = description.rfind(behind_text);
    if (start == description.npos || !description.ends_with(')')) return {};
    description.remove_suffix(1);
    const std::string_view id = description.substr(start + behind_text.size());
    return is_id(id) ? std::string(id) : std::string();
}

Or<ExportFacts> shake_hands(const ByteStream& stream, std::string_view name,
                            std::optional<std::uint32_t> block_size) {
    if (auto failed = greet(stream)) return *failed;
    if (auto failed = ask_to_go(stream, name)) return *failed;
    ExportFacts facts;
    for (;;) {
        auto answer = receive_answer(stream);
        if (const auto* failed = std::get_if<Failure>(&answer)) return *failed;
        const auto& [kind, data] = std::get<OptionAnswer>(answer);
        if (kind == OptionReply::ack) break;
        if (kind != OptionReply::info) return refusal(kind, data, name);
        if (!take_info(data, facts)) return Failure{"the server tells half a fact of its export"};
    }
    if (auto failed = unusable(facts)) return *failed;
    if (auto failed = set_block_size(facts, block_size)) return *failed;
    return facts;
}

}  // namespace gpunbd::attach
