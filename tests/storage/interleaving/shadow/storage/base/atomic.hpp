// Takes the place of storage/base/atomic.hpp: each access is a step of the scheduler.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/storage/interleaving/scheduler.hpp"

namespace gpunbd {

// The operations of std::atomic and std::atomic_ref on a location.
template <typename T>
class ScheduledAccess {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);

 public:
    static T load(const T& at, std::memory_order order) {
        return value_of(interleaving::load(&at, sizeof(T), order));
    }
    static void store(T& at, T value, std::memory_order order) {
        interleaving::store(&at, sizeof(T), word_of(value), order);
    }
    static T add(T& at, T value, std::memory_order order) {
        return value_of(interleaving::add(&at, sizeof(T), word_of(value), order));
    }

 private:
    static std::uint64_t word_of(T value) {
        std::uint64_t word = 0;
        std::memcpy(&word, &value, sizeof(T));
        return word;
    }
    static T value_of(std::uint64_t word) {
        T value;
        std::memcpy(&value, &word, sizeof(T));
        return value;
    }
};

template <typename T>
class Atomic {
    using Access = ScheduledAccess<T>;
    static constexpr auto seq_cst = std::memory_order_seq_cst;

 public:
    constexpr Atomic() = default;
    constexpr Atomic(T value) : value_(value) {}  // as that of std::atomic

    T load(std::memory_order order = seq_cst) const { return Access::load(value_, order); }
    void store(T value, std::memory_order order = seq_cst) { Access::store(value_, value, order); }
    T fetch_add(T value, std::memory_order order = seq_cst) {
        return Access::add(value_, value, order);
    }
    T fetch_sub(T value, std::memory_order order = seq_cst) {
        return Access::add(value_, static_cast<T>(T{} - value), order);
    }

 private:
    T value_{};
};

template <typename T>
class AtomicRef {
    using Access = ScheduledAccess<T>;
    static constexpr auto seq_cst = std::memory_order_seq_cst;

 public:
    static constexpr bool is_always_lock_free = true;
    explicit AtomicRef(T& value) : value_(&value) {}

    T load(std::memory_order order = seq_cst) const { return Access::load(*value_, order); }
    void store(T value, std::memory_order order = seq_cst) const {
        Access::store(*value_, value, order);
    }

 private:
    T* value_;
};

}  // namespace gpunbd
