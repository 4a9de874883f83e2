// A list with copy-on-write elements: its copies share an element until one of them changes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace gpunbd::config {

// A copy costs a pointer for each element. Different threads may use different copies. References
// to elements stay valid while the list grows, but not when their element is changed or removed.
template <class T>
class SharedList {
    using Elements = std::vector<std::shared_ptr<T>>;

 public:
    using value_type = T;

    class Iterator {
     public:
        using value_type = T;
        using difference_type = std::ptrdiff_t;
        using reference = const T&;
        using pointer = const T*;
        using iterator_category = std::forward_iterator_tag;

        Iterator() = default;
        const T& operator*() const { return **at_; }
        const T* operator->() const { return at_->get(); }
        Iterator& operator++() {
            ++at_;
            return *this;
        }
        Iterator operator++(int) { return Iterator(at_++); }
        bool operator==(const Iterator&) const = default;

     private:
        friend class SharedList;
        explicit Iterator(typename Elements::const_iterator at) : at_(at) {}
        typename Elements::const_iterator at_{};
    };
    using const_iterator = Iterator;

    SharedList() = default;
    SharedList(std::initializer_list<T> elements) {
        elements_.reserve(elements.size());
        for (const T& each : elements) push_back(each);
    }

    std::size_t size() const { return elements_.size(); }
    bool empty() const { return elements_.empty(); }
    Iterator begin() const { return Iterator(elements_.begin()); }
    Iterator end() const { return Iterator(elements_.end()); }
    const T& operator[](std::size_t index) const { return *elements_[index]; }
    const T& front() const { return *elements_.front(); }
    const T& back() const { return *elements_.back(); }

    // These return an element of this list alone.
    T& operator[](std::size_t index) { return own(elements_[index]); }
    T& front() { return own(elements_.front()); }
    T& back() { return own(elements_.back()); }
    T& edit(Iterator which) {
        return (*this)[static_cast<std::size_t>(which.at_ - elements_.begin())];
    }

    void reserve(std::size_t size) { elements_.reserve(size); }
    void push_back(T element) { elements_.push_back(std::make_shared<T>(std::move(element))); }
    T& emplace_back() { return *elements_.emplace_back(std::make_shared<T>()); }
    void erase(Iterator which) { elements_.erase(which.at_); }
    template <class Is>
    void erase_if(const Is& is) {
        std::erase_if(elements_, [&](const auto& each) { return is(std::as_const(*each)); });
    }

    bool operator==(const SharedList& other) const {
        return std::ranges::equal(elements_, other.elements_,
                                  [](const auto& a, const auto& b) { return a == b || *a == *b; });
    }

 private:
    static T& own(std::shared_ptr<T>& element) {
        if (element.use_count() != 1) {
            element = std::make_shared<T>(*element);
        } else {
            // use_count() is relaxed: reads by the thread that destroyed the last copy come first.
            std::atomic_thread_fence(std::memory_order_acquire);
        }
        return *element;
    }

    Elements elements_;
};

}  // namespace gpunbd::config
