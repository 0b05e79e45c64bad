/* SPDX-License-Identifier: GPL-2.0 */
/* A machine's only program: a window with a known number of instructions. */

#define VECTOR	0x20

	.code32
	.text
	.align 4
	/* For QEMU to load it: a Multiboot header. */
	.long 0x1badb002, 0, -0x1badb002

	.globl _start
_start:
	mov $0x200000, %esp
	mov $0x80000, %edi
	cld
	lgdt gdt_ptr
	lidt idt_ptr
	mov $handler, %eax
	movw %ax, idt + 8 * VECTOR
	movw $8, idt + 8 * VECTOR + 2
	movw $0x8e00, idt + 8 * VECTOR + 4
	shr $16, %eax
	movw %ax, idt + 8 * VECTOR + 6
	.byte 0x0f, 0x1f, 0x84, 0, 'p', 'v', 'i', 'b'
	jmp window

#ifdef GUEST
	/* Three system calls: they send a request, look, find, sleep and are woken. */
window:
	mov $3, %ebx
1:	call round
	dec %ebx			/* 3 of each call, with the next one */
	jnz 1b
	jmp 2f

	.globl round
round:
	mov $3, %ecx			/* 1 */
3:	call look			/* 1, before the first look */
	dec %ecx			/* 2 of each look, and the next call of it */
	jnz 3b
	call found			/* 1 */
	call look			/* 1, and the look counts: a reply was found before */
	call schedule			/* 1 */
	call look			/* 1, and likewise */
	call rest			/* 1 */
	ret				/* 1 */

	.globl look
look:
	mov $5, %eax			/* 1 */
4:	dec %eax			/* 10 */
	jnz 4b
	ret				/* 1 */

	.globl rest
rest:
	mov $20, %eax
5:	dec %eax
	jnz 5b
	int $VECTOR			/* and up to here 42 */
	call go				/* 1 */
	ret				/* 1, not idle any more */

	.globl found, go
found:
	ret				/* 1 */
go:
	ret				/* 1 */
#else
	/* Rounds 7, 4, 2 and 1 are idle; 6, 5 and 3 find work. */
window:
	mov $7, %ebx			/* 1 */
1:	call round
	dec %ebx			/* 3 of each round, with the next call */
	jnz 1b
	jmp 2f

	.globl round
round:
	mov $100, %ecx
	rep stosb			/* counts once */
	cmp $6, %ebx
	je found			/* the 4th of round 6 */
	cmp $5, %ebx
	je interrupted			/* the 6th of round 5 */
	cmp $3, %ebx
	je broken
	ret				/* the 9th of an idle round */

interrupted:
	int $VECTOR			/* 1 */
	jmp found			/* 1 */

broken:
	call schedule
	jmp found

	.globl found
found:
	mov $10, %ecx			/* 1 */
3:	loop 3b				/* 10 */
	ret				/* 1 */
#endif

	.globl schedule
schedule:
	ret

	.globl handler
handler:
	push %ecx			/* 1 */
	mov $50, %ecx			/* 1 */
4:	loop 4b				/* 50 */
	pop %ecx			/* 1 */
	iret				/* 1 */

2:	.byte 0x0f, 0x1f, 0x84, 0, 'p', 'v', 'i', 'e'
	/* Ends QEMU: isa-debug-exit. */
	mov $0, %al
	out %al, $0xf4
	hlt

	.align 8
gdt:	.quad 0, 0x00cf9a000000ffff
gdt_ptr:
	.word gdt_ptr - gdt - 1
	.long gdt
	.align 8
idt:	.skip 8 * (VECTOR + 1)
idt_ptr:
	.word idt_ptr - idt - 1
	.long idt
