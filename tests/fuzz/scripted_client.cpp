#include "tests/fuzz/scripted_client.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "tests/fuzz/require.hpp"

namespace gpunbd::fuzz {

using protocol::Command;
using protocol::CommandType;
using protocol::Error;
using protocol::Refusal;
using server::test::Answer;
using server::test::Ask;
using server::test::Bytes;

namespace {

bool changes(const Command& command) {
    return command.type == CommandType::write || command.type == CommandType::trim ||
           command.type == CommandType::write_zeroes;
}

}  // namespace

ScriptedClient::ScriptedClient(server::test::Client client, protocol::NegotiatedOptions negotiated,
                               Shadow& shadow)
    : client_(std::move(client)), negotiated_(std::move(negotiated)), shadow_(shadow) {}

void ScriptedClient::ask(const Ask& ask) {
    if (spoilt_ || stopped_ || cut_) return;
    const std::uint64_t cookie = client_.expect(ask);
    const protocol::Request request = server::test::request_of(ask, cookie, extended());
    protocol::Validated verdict = validate(request, negotiated_);
    if (std::holds_alternative<protocol::StatusPayload>(verdict)) {
        verdict = validate_status(request, server::test::status_payload_of(ask), negotiated_);
    }
    // Where it is hung up on, no payload follows.
    const bool hung_up_on = std::holds_alternative<protocol::Hangup>(verdict);
    const Bytes bytes = hung_up_on ? server::test::encoded_header(ask, cookie, extended())
                                   : server::test::encoded(ask, cookie, extended());
    to_send_.insert(to_send_.end(), bytes.begin(), bytes.end());
    if (leaves_) return;  // nobody reads it
    Shadow::Time at = shadow_.now();
    const auto* const command = std::get_if<Command>(&verdict);
    if (command != nullptr && changes(*command)) {
        at = shadow_.begin_change(command->offset, command->length);
    }
    leaves_ = ask.type == CommandType::disc || hung_up_on;
    hung_up_on_ = hung_up_on;
    if (!leaves_) asked_.emplace(cookie, Asked{ask, verdict, at});
}

void ScriptedClient::send_junk(std::span<const std::byte> bytes) {
    if (stopped_ || cut_) return;
    if (!spoilt_) shadow_.begin_change(0, shadow_.size());  // and that never ends
    spoilt_ = true;
    to_send_.insert(to_send_.end(), bytes.begin(), bytes.end());
}

void ScriptedClient::send(std::size_t most) {
    if (stopped_ || cut_) return;
    const std::size_t sent =
        client_.offer(std::span(to_send_).first(std::min(most, to_send_.size())));
    to_send_.erase(to_send_.begin(), to_send_.begin() + static_cast<std::ptrdiff_t>(sent));
}

void ScriptedClient::receive(std::size_t most) {
    if (cut_) return;
    client_.receive_here(most);
    if (spoilt_) return;  // its own answers and those to junk: all the same to it
    while (const auto answer = client_.next_here()) check(*answer);
    if (client_.ended()) check_end();
}

void ScriptedClient::stop_sending() {
    if (cut_) return;
    client_.shut_down_sending();
    stopped_ = true;
}

void ScriptedClient::cut() {
    client_.close();
    cut_ = true;
}

void ScriptedClient::check(const Answer& answer) {
    const auto at = asked_.find(answer.cookie);
    require(at != asked_.end(), "an answer belongs to a request");
    const Asked& asked = at->second;
    check_error(asked, answer.error);
    const auto* const command = std::get_if<Command>(&asked.verdict);
    if (command != nullptr) {
        const bool succeeded = answer.error == Error::none;
        const bool is_write = command->type == CommandType::write;
        if (changes(*command)) {
            const Bytes payload = is_write ? server::test::payload_of(asked.ask) : Bytes();
            shadow_.end_change(command->offset, command->length, asked.at, succeeded,
                               [&](std::size_t i) { return is_write ? payload[i] : std::byte{0}; });
        } else if (succeeded && command->type == CommandType::read) {
            check_data(asked, answer.data);
        } else if (succeeded && command->type == CommandType::block_status) {
            check_extents(asked, answer.extents);
        }
    }
    asked_.erase(at);
}

void ScriptedClient::check_error(const Asked& asked, Error error) const {
    if (ends_excused && error == Error::eshutdown) return;
    if (const auto* const refusal = std::get_if<Refusal>(&asked.verdict)) {
        require(error == refusal->error, "what the gate refuses is refused, with its error");
        return;
    }
    const Command& command = std::get<Command>(asked.verdict);
    if (command.no_hole && command.fast_zero) {
        require(error == Error::enotsup, "zeroes that have to be stored are not fast");
    } else if (failures_excused) {
        require(error == Error::none || error == Error::eio || error == Error::enospc,
                "a device fails with EIO or ENOSPC");
    } else {
        require(error == Error::none, "a valid command succeeds");
    }
}

void ScriptedClient::check_data(const Asked& asked, const Bytes& data) const {
    require(data.size() == asked.ask.length, "a READ has all of its data");
    for (std::size_t i = 0; i != data.size(); ++i) {
        require(shadow_.may_be(asked.ask.offset + i, data[i], asked.at), "a READ's contents");
    }
}

void ScriptedClient::check_extents(const Asked& asked,
                                   const std::vector<protocol::Extent>& extents) const {
    require(!extents.empty(), "a BLOCK_STATUS has an extent");
    if ((asked.ask.flags & protocol::command_flag::req_one) != 0) {
        require(extents.size() == 1, "REQ_ONE: one extent");
    }
    const std::uint64_t end = asked.ask.offset + asked.ask.length;
    std::uint64_t at = asked.ask.offset;
    for (const protocol::Extent& extent : extents) {
        require(extent.length != 0 && extent.length <= end - at, "extents are of what was asked");
        const std::uint64_t its_end = at + extent.length;
        for (; at != its_end; ++at) {
            if ((extent.status & protocol::state_zero) == 0) continue;
            require(shadow_.may_be(at, std::byte{0}, asked.at), "what is told to be zero is");
        }
    }
}

void ScriptedClient::check_end() const {
    require(leaves_ || stopped_ || ends_excused || failures_excused, "an honest client is not cut");
    if (leaves_ && !hung_up_on_ && !failures_excused && !ends_excused && to_send_.empty()) {
        require(asked_.empty(), "what was asked before DISC is answered");
    }
}

}  // namespace gpunbd::fuzz
